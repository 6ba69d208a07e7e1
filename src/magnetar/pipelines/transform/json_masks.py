"""Masks on JSON: only the members on the path of a masked field are read, all others keep their bytes.

So numbers keep their spelling and members their order. Of a duplicate member the last one is kept, the one that readers
see.
"""

from __future__ import annotations

import msgspec

from magnetar.pipelines.transform.mask_paths import CannotMask, Wanted, by_name, mask_here, replacement
from magnetar.replication.model import Mask, MaskKind

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode

_SPACES = b" \t\r\n"


def masked(value: bytes, paths: Wanted, *, objects_only: bool = False) -> bytes:
    """Masks an object, or an array unless `objects_only`. Raises `CannotMask`."""
    value = value.strip(_SPACES)
    is_one = value.startswith(b"{") or (value.startswith(b"[") and not objects_only)
    if not is_one:
        kinds = "a JSON object" if objects_only else "a JSON object or array"
        raise CannotMask(f"it is not {kinds}, of {len(value)} bytes")
    try:
        value.decode()  # the encoding of skipped strings is not checked otherwise
        return _edited(value, paths)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CannotMask(f"it is not JSON: {error}") from None


def _edited(value: bytes, paths: Wanted) -> bytes:
    mask = mask_here(paths)
    if value.startswith(b"[") and not (mask and mask.kind is MaskKind.NULL):
        return b"[" + b",".join(_edited(bytes(each), paths) for each in _array(value)) + b"]"
    if mask is not None:
        return _replaced(value, mask)
    if not value.startswith(b"{"):
        return value
    members = _object(value)
    for name, inside in by_name(paths).items():
        if name in members:
            members[name] = msgspec.Raw(_edited(bytes(members[name]), inside))
    return _encode(members)


def _replaced(value: bytes, mask: Mask) -> bytes:
    if mask.kind is MaskKind.NULL or (value == b"null" and mask.kind is MaskKind.HASH):
        return b"null"
    text = _text(value).encode() if value.startswith(b'"') else canonical(value)
    return _encode(replacement(mask, text))


def canonical(value: bytes) -> bytes:
    """The same bytes for the same JSON: members sorted, no spaces, texts in one spelling; numbers as they are."""
    if value.startswith(b"{"):
        members = sorted(_object(value).items())
        return b"{" + b",".join(_encode(name) + b":" + canonical(bytes(each)) for name, each in members) + b"}"
    if value.startswith(b"["):
        return b"[" + b",".join(canonical(bytes(each)) for each in _array(value)) + b"]"
    return _encode(_text(value)) if value.startswith(b'"') else value
