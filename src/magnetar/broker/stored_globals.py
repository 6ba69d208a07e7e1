"""Records that the broker as a whole cannot do without: the last id and the dynamic settings.

One that cannot be read refuses the start, with its key: a broker that guesses would use ids twice, or obey settings
that an operator changed. Knows nothing of the catalog.
"""

from __future__ import annotations

import struct

from magnetar.broker import keys
from magnetar.errors import Damaged
from magnetar.settings.dynamic import DYNAMIC
from magnetar.storage.api import Space, Storage


class GlobalRecordDamaged(Damaged):
    """The start is refused."""


def unreadable(key: bytes, what: str, value: bytes) -> GlobalRecordDamaged:
    return GlobalRecordDamaged(
        f"the record {key.decode(errors='backslashreplace')!r} ({what}) cannot be read: it is {value[:32]!r},"
        f" {len(value)} bytes"
    )


def read_last_id(storage: Storage) -> int | None:
    """None for a new folder."""
    value = storage.get(Space.STATE, keys.LAST_ID)
    if value is None:
        return None
    try:
        last_id: int = keys.ID.unpack(value)[0]
    except struct.error:
        raise unreadable(keys.LAST_ID, "the last id given to a topic or a subscription", value) from None
    return last_id


def read_dynamic_settings(storage: Storage) -> dict[str, str]:
    """Without those that are no longer settings."""
    kind, texts = keys.DYNAMIC_SETTING, {}
    for key, value in storage.scan(Space.STATE, kind, keys.after(kind)):
        try:
            texts[key[1:].decode()] = value.decode()
        except UnicodeDecodeError:
            raise unreadable(key, "a dynamic setting", value) from None
    return {name: text for name, text in texts.items() if name in DYNAMIC}
