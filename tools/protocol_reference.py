"""Generates docs/protocol.md from the command table of the session: `python -m tools.protocol_reference`."""

from __future__ import annotations

from magnetar.session.handles import Command
from magnetar.session.rights.needs import HANDLE
from magnetar.session.table import TABLE


def protocol_page() -> str:
    """Every supported command, and the state of a connection in which it is allowed."""
    lines = [
        "# The protocol",
        "",
        "Commands that a client may send, by the state of its connection; generated from `session/table.py` by",
        "`make docs`. SEND is handled by the session itself. An unsupported command with a request id gets an ERROR",
        "with NotAllowedError and the connection stays open; any other command that is not in the table closes it.",
        "",
        "With `authorizationEnabled=true` a client needs the right in the column *needs* on the topic, subscription or",
        "namespace that its command names. A right that is taken away closes the producers and consumers that it had",
        "opened.",
        "",
        "| command | state | needs | handled by |",
        "|---|---|---|---|",
        f"| SEND | connected | {HANDLE.text} | `session.receive` |",
    ]
    for state, entries in TABLE.items():
        for command, (handler, needs, _) in entries.items():
            where = f"{handler.__module__.removeprefix('magnetar.session.')}.{handler.__name__}"
            lines.append(f"| {Command.Type.Name(command)} | {state.value} | {needs.text} | `{where}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(protocol_page(), end="")
