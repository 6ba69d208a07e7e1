"""`magnetar backup` and `magnetar restore`: a copy of all data of a running broker, and a data folder made from one.

The broker makes a checkpoint inside its data folder; this program, on the same machine, copies it to where the operator
wants it and has it removed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from magnetar.cli.command import Json
from magnetar.cli.login.login import Login
from magnetar.cli.login.options import with_login
from magnetar.cli.nouns.standalone import DATA_DEFAULT
from magnetar.cli.output import Done, Record, present, print_note, shown_bytes, shown_time
from magnetar.cli.rest import NoResponse, Rest
from magnetar.errors import BackupFailed, InvalidSetting, MagnetarError

PROGRESS_EVERY_S = 2.0

Target = Annotated[
    str | None, typer.Argument(metavar="DIR", help="The folder of the backup: new, or empty.", show_default=False)
]
Discard = Annotated[
    bool, typer.Option("--discard", help="Make no backup, but remove the checkpoint of one that was not finished.")
]
Source = Annotated[str, typer.Argument(metavar="BACKUP", help="The folder that `magnetar backup` made.")]
Data = Annotated[str, typer.Option("--data", metavar="DIR", help="The data folder to make: new, or empty.")]


@with_login
def backup(login: Login, folder: Target = None, discard: Discard = False, json: Json = False) -> int:
    """Copy all data of a running broker to a folder of this machine.

    It has everything that was acknowledged before the command started. Run it
    on the machine of the broker, as the broker's user.
    """
    if discard == (folder is not None):
        raise InvalidSetting("give either the folder DIR or --discard")
    with Rest(login.url, login.security, trust_from=login.trust_from) as rest:
        if folder is None:
            rest.delete("brokers", "backup")
            return present(Done("removed the checkpoint, if there was one"), as_json=json)
        return present(_made(rest, _path("DIR", folder)), as_json=json)


def _made(rest: Rest, target: Path) -> Record:
    from magnetar.server.backup_files import copy_checkpoint, require_empty

    require_empty(target)
    try:
        checkpoint: dict[str, Any] = rest.post("brokers", "backup")
    except NoResponse as error:
        raise BackupFailed(f"{error}; the data folder of a stopped broker can be copied as it is") from error
    try:
        listed = copy_checkpoint(
            Path(checkpoint["path"]),
            target,
            version=checkpoint["version"],
            cluster=checkpoint["cluster"],
            made_ms=time.time_ns() // 1_000_000,
            progress=CopyProgress("copied"),
        )
    finally:
        _remove(rest)
    value = {
        "folder": str(target.resolve()),
        "cluster": listed.cluster,
        "format": listed.format,
        "files": len(listed.files),
        "bytes": listed.size,
    }
    return Record(value, fields={**value, "bytes": shown_bytes(listed.size)})


def _remove(rest: Rest) -> None:
    try:
        rest.delete("brokers", "backup")
    except MagnetarError as error:
        print_note(f"the checkpoint in the data folder stays until the broker restarts: {error}")


def restore(source: Source, data: Data = str(DATA_DEFAULT), json: Json = False) -> int:
    """Make a data folder from a backup; every byte is checked.

    A broker started on it has the cluster's name, messages, positions and ids
    of the original.
    """
    from magnetar.server.backup_files import restore

    target = _path("--data", data)
    restored = restore(_path("BACKUP", source), target, CopyProgress("restored"))
    listed = restored.listed
    value = {
        "data": str(target.resolve()),
        "cluster": restored.cluster,
        "made": shown_time(listed.made_ms),
        "topics": restored.topics,
        "subscriptions": restored.subscriptions,
        "bytes": listed.size,
    }
    fields = {**value, "bytes": shown_bytes(listed.size), "start": f"magnetar standalone --data {target}"}
    return present(Record(value, fields=fields), as_json=json)


def _path(name: str, text: str) -> Path:
    if not text.strip():
        raise InvalidSetting(f"{name} is empty")
    return Path(text)


class CopyProgress:
    """A line on stderr from time to time."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._next_s = time.monotonic() + PROGRESS_EVERY_S

    def __call__(self, done: int, all: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + PROGRESS_EVERY_S
            print(f"{self._verb} {shown_bytes(done)} of {shown_bytes(all)}", file=sys.stderr, flush=True)
