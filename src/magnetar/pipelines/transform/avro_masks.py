"""Masks on Avro's binary encoding: masked fields are rewritten, all others keep their bytes.

A definition is compiled once into a function for each type on the path (`Edit`, `Skip`). A value has to end where its
definition does. Owns which types can hold a mask.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.pipelines.transform.mask_paths import CannotMask, Wanted, by_name, mask_here, replacement
from magnetar.replication.model import Mask, MaskKind
from magnetar.schema.avro import AvroType
from magnetar.wire.varint import decode_zigzag, encode_zigzag

Skip = Callable[[bytes, int], int]
"""Returns the offset after the value at an offset."""

Edit = Callable[[bytes, int, list[bytes]], int]
"""The same, and appends the edited value."""

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def masker(definition: AvroType, paths: Wanted) -> Callable[[bytes], bytes]:
    """Raises `CannotMask` if a field cannot hold its mask; the returned function does so for a malformed value."""
    skips = _Skips()
    edit = _Edits(skips).of(definition, paths, "")
    skip = skips.of(definition)

    def masked(value: bytes) -> bytes:
        parts: list[bytes] = []
        try:
            end = skip(value, 0) if edit is None else edit(value, 0, parts)
        except IndexError:
            raise CannotMask(f"the Avro value of {len(value)} bytes ends before {definition} does") from None
        except ValueError as error:
            raise CannotMask(f"the Avro value of {len(value)} bytes is malformed: {error}") from None
        if end != len(value):
            raise CannotMask(f"the Avro value has {len(value)} bytes, where {definition} has {end}")
        return value if edit is None else b"".join(parts)

    return masked


def check(definition: AvroType, paths: Wanted) -> None:
    """Raises `CannotMask` if a field cannot hold its mask."""
    _Edits(_Skips()).of(definition, paths, "")


# -- offsets


def _skip_long(data: bytes, at: int) -> int:
    return decode_zigzag(data, at)[1]


def _skip_bytes(data: bytes, at: int) -> int:
    return _bounds(data, at)[1]


def _bounds(data: bytes, at: int) -> tuple[int, int]:
    """The start and end of the content of bytes or a string."""
    size, start = decode_zigzag(data, at)
    if size < 0 or start + size > len(data):
        raise CannotMask(f"a text of {size} bytes at {at} of the Avro value of {len(data)} bytes")
    return start, start + size


def _member(data: bytes, at: int, members: int) -> tuple[int, int]:
    index, start = decode_zigzag(data, at)
    if not 0 <= index < members:
        raise CannotMask(f"member {index} at {at} of the Avro value, of a union of {members}")
    return index, start


def _block(data: bytes, at: int) -> tuple[int, int]:
    """The number of elements that follow, 0 at the end."""
    count, start = decode_zigzag(data, at)
    if count < 0:
        count = -count
        start = _skip_long(data, start)  # the size of the block in bytes
    if count > len(data):
        raise CannotMask(f"{count} elements at {at} of the Avro value of {len(data)} bytes")
    return count, start


class _Skips:
    """Functions that skip values, by type; a recursive type finds its own."""

    def __init__(self) -> None:
        self._made: dict[AvroType, Skip] = {}

    def of(self, type_: AvroType) -> Skip:
        made = self._made.get(type_)
        if made is None:
            made = self._made[type_] = self._make(type_)
        return made

    def _make(self, type_: AvroType) -> Skip:
        kind = type_.kind
        if kind in ("int", "long"):
            return _skip_long
        if kind in ("bytes", "string"):
            return _skip_bytes
        if kind == "enum":
            return lambda data, at: _member(data, at, len(type_.symbols))[1]
        if kind in ("array", "map"):
            return self._blocks(type_)
        if kind == "union":
            return self._union(type_)
        if kind == "record":
            return self._record(type_)
        size = type_.size if kind == "fixed" else _SIZES[kind]
        return lambda data, at: at + size

    def _record(self, type_: AvroType) -> Skip:
        parts: list[Skip] = []

        def skip(data: bytes, at: int) -> int:
            for part in parts:
                at = part(data, at)
            return at

        self._made[type_] = skip
        parts.extend(self.of(each.type) for each in type_.fields)
        return skip

    def _union(self, type_: AvroType) -> Skip:
        members = [self.of(each) for each in type_.parts]

        def skip(data: bytes, at: int) -> int:
            index, at = _member(data, at, len(members))
            return members[index](data, at)

        return skip

    def _blocks(self, type_: AvroType) -> Skip:
        item, has_keys = self.of(type_.parts[0]), type_.kind == "map"

        def skip(data: bytes, at: int) -> int:
            while True:
                count, at = _block(data, at)
                if not count:
                    return at
                for _ in range(count):
                    at = item(data, _skip_bytes(data, at) if has_keys else at)

        return skip


class _Edits:
    """Functions that rewrite values with masked fields. Paths get shorter in records and maps, so this ends."""

    def __init__(self, skips: _Skips) -> None:
        self._skips = skips

    def of(self, type_: AvroType, paths: Wanted, where: str) -> Edit | None:
        """None if no field is masked."""
        mask = mask_here(paths)
        if mask is not None:
            return self._masked(type_, mask, where)
        if not paths:
            return None
        if type_.kind == "record":
            return self._record(type_, paths, where)
        if type_.kind == "map":
            return self._map(type_, paths, where)
        if type_.kind == "array":
            item = self.of(type_.parts[0], paths, where)
            return None if item is None else _edit_array(item)
        if type_.kind == "union":
            members = [self.of(each, paths, where) for each in type_.parts]
            return self._union(type_, members) if any(members) else None
        return None

    # -- on the path

    def _record(self, type_: AvroType, paths: Wanted, where: str) -> Edit | None:
        inside = by_name(paths)
        edits = [
            self.of(each.type, inside[each.name], f"{where}.{each.name}" if where else each.name)
            if each.name in inside
            else None
            for each in type_.fields
        ]
        if not any(edits):
            return None
        parts = [(edit, self._skips.of(each.type)) for edit, each in zip(edits, type_.fields, strict=True)]

        def write(data: bytes, at: int, out: list[bytes]) -> int:
            copied = at
            for edit, skip in parts:
                if edit is None:
                    at = skip(data, at)
                else:
                    out.append(data[copied:at])
                    at = copied = edit(data, at, out)
            out.append(data[copied:at])
            return at

        return write

    def _map(self, type_: AvroType, paths: Wanted, where: str) -> Edit | None:
        item = type_.parts[0]
        edits = {name: self.of(item, rest, f"{where}.{name}") for name, rest in by_name(paths).items()}
        named = {name.encode(): edit for name, edit in edits.items() if edit is not None}
        if not named:
            return None
        skip = self._skips.of(item)

        def write(data: bytes, at: int, out: list[bytes]) -> int:
            while True:
                count, at = _block(data, at)
                out.append(encode_zigzag(count))
                if not count:
                    return at
                for _ in range(count):
                    start, end = _bounds(data, at)
                    edit = named.get(data[start:end])
                    if edit is None:
                        end = skip(data, end)
                        out.append(data[at:end])
                        at = end
                    else:
                        out.append(data[at:end])
                        at = edit(data, end, out)

        return write

    def _union(self, type_: AvroType, members: list[Edit | None]) -> Edit:
        parts = [(edit, self._skips.of(each)) for edit, each in zip(members, type_.parts, strict=True)]

        def write(data: bytes, at: int, out: list[bytes]) -> int:
            index, start = _member(data, at, len(parts))
            edit, skip = parts[index]
            if edit is None:
                end = skip(data, start)
                out.append(data[at:end])
                return end
            out.append(data[at:start])
            return edit(data, start, out)

        return write

    # -- at the end of the path

    def _masked(self, type_: AvroType, mask: Mask, where: str) -> Edit:
        if mask.kind is MaskKind.NULL:
            edit = self._nulled(type_)
            if edit is None:
                raise CannotMask(f"field {where} has type {type_}, which cannot be null: use another kind of mask")
            return edit
        return self._replaced(type_, mask, where)

    def _nulled(self, type_: AvroType) -> Edit | None:
        if type_.kind == "array":
            item = self._nulled(type_.parts[0])
            return None if item is None else _edit_array(item)
        null_at = _null_at(type_)
        if null_at is None:
            return None
        skip, null = self._skips.of(type_), encode_zigzag(null_at)

        def write(data: bytes, at: int, out: list[bytes]) -> int:
            out.append(null)
            return skip(data, at)

        return write

    def _replaced(self, type_: AvroType, mask: Mask, where: str) -> Edit:
        if type_.kind == "array":
            return _edit_array(self._replaced(type_.parts[0], mask, where))
        if type_.kind == "union" and any(each.kind != "null" for each in type_.parts):
            edits = [None if each.kind == "null" else self._replaced(each, mask, where) for each in type_.parts]
            edit = self._union(type_, edits)
            return _edit_null_too(edit, type_, mask) if mask.kind is MaskKind.FIXED else edit
        if type_.kind not in ("string", "bytes") or type_.logical:
            raise CannotMask(f"field {where} has type {type_}: a mask of kind {mask.kind.value} needs string or bytes")

        def write(data: bytes, at: int, out: list[bytes]) -> int:
            start, end = _bounds(data, at)
            text = replacement(mask, data[start:end]).encode()
            out += (encode_zigzag(len(text)), text)
            return end

        return write


def _null_at(type_: AvroType) -> int | None:
    if type_.kind != "union":
        return None
    return next((index for index, each in enumerate(type_.parts) if each.kind == "null"), None)


def _edit_array(item: Edit) -> Edit:
    def write(data: bytes, at: int, out: list[bytes]) -> int:
        while True:
            count, at = _block(data, at)
            out.append(encode_zigzag(count))
            if not count:
                return at
            for _ in range(count):
                at = item(data, at, out)

    return write


def _edit_null_too(edit: Edit, type_: AvroType, mask: Mask) -> Edit:
    """A fixed text replaces null as well, if the union has a string or bytes."""
    null_at = _null_at(type_)
    text_at = next((index for index, each in enumerate(type_.parts) if each.kind in ("string", "bytes")), None)
    if null_at is None or text_at is None:
        return edit
    text = mask.text.encode()
    fixed = encode_zigzag(text_at) + encode_zigzag(len(text)) + text

    def write(data: bytes, at: int, out: list[bytes]) -> int:
        index, start = decode_zigzag(data, at)
        if index == null_at:
            out.append(fixed)
            return start
        return edit(data, at, out)

    return write
