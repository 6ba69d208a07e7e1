"""docs/protocol.md, drawn from the table of the session: `python -m tools.protocol_reference`."""

from __future__ import annotations

from magnetar.session.handles import Command
from magnetar.session.table import TABLE


def protocol_page() -> str:
    """Every command of the protocol, and in which state of a connection it is understood."""
    lines = [
        "# The protocol",
        "",
        "What a client may say, by the state of its connection; drawn from `session/table.py` by `make docs`. SEND is",
        "handled by the session itself. A command with a request id that is not understood gets an ERROR with",
        "NotAllowedError and the connection goes on; anything else that is not in the table ends it.",
        "",
        "| command | state | handled by |",
        "|---|---|---|",
        "| SEND | connected | `session.receive` |",
    ]
    for state, handlers in TABLE.items():
        for command, handler in handlers.items():
            where = f"{handler.__module__.removeprefix('magnetar.session.')}.{handler.__name__}"
            lines.append(f"| {Command.Type.Name(command)} | {state.value} | `{where}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(protocol_page(), end="")
