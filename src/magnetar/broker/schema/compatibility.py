"""Compatibility strategies: whether a schema may follow the versions a topic has, with Apache Pulsar's rules.

    ALWAYS_COMPATIBLE     anything, even of another type
    ALWAYS_INCOMPATIBLE   nothing new
    BACKWARD              the new schema reads what the latest wrote
    FORWARD               the latest reads what the new one writes
    FULL                  both
    …_TRANSITIVE          the same with every version, not only the latest

`avro` compares AVRO, JSON and PROTOBUF, which all have definitions in Avro's notation. PROTOBUF_NATIVE may change
anything but the name of its message. Other types have no definition.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from magnetar.bounds import SCHEMA_VERDICTS
from magnetar.broker.schema.definition import key_and_value, parse_avro
from magnetar.broker.schema.protobuf_native import root_message
from magnetar.errors import IncompatibleSchema
from magnetar.schema.avro import is_jackson, jackson_id
from magnetar.schema.types import Schema, SchemaType

ALWAYS_COMPATIBLE, ALWAYS_INCOMPATIBLE = "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"
_NEW_READS_OLD = frozenset({"BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_OLD_READS_NEW = frozenset({"FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_TRANSITIVE = frozenset({"BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"})


def check(new: Schema, earlier: Sequence[tuple[int, Schema]], strategy: str) -> None:
    """Raises IncompatibleSchema unless `new` may follow the versions in `earlier`, oldest first."""
    if strategy == ALWAYS_COMPATIBLE or not earlier:
        return
    for version, old in reversed(earlier if strategy in _TRANSITIVE else earlier[-1:]):
        if old.type is not new.type:
            raise IncompatibleSchema(f"the schema is of type {new.type.name}, version {version} is {old.type.name}")
        if strategy == ALWAYS_INCOMPATIBLE:
            raise IncompatibleSchema(
                f"version {version} exists, and the compatibility strategy is {ALWAYS_INCOMPATIBLE}"
            )
        problem = _problem(new, old, strategy)
        if problem:
            raise IncompatibleSchema(
                f"the schema is incompatible with version {version}, the strategy is {strategy}: {problem}"
            )


def check_reader(reader: Schema, earlier: Sequence[tuple[int, Schema]], strategy: str) -> None:
    """As `check`, for a consumer's schema, which is not added: with FORWARD too it has to read the latest version."""
    is_about_all = strategy in ("BACKWARD_TRANSITIVE", "FULL_TRANSITIVE", ALWAYS_COMPATIBLE, ALWAYS_INCOMPATIBLE)
    check(reader, earlier, strategy if is_about_all else "BACKWARD")


def _problem(new: Schema, old: Schema, strategy: str) -> str:
    """The reason for a refusal, or an empty text."""
    if new.type is SchemaType.KEY_VALUE:
        return _key_value_problem(new, old, strategy)
    if new.type is SchemaType.PROTOBUF_NATIVE:
        new_root, old_root = root_message(new.data), root_message(old.data)
        return "" if new_root == old_root else f"its message is {new_root}, not {old_root}"
    if new.type is SchemaType.JSON and (is_jackson(new.data) or is_jackson(old.data)):
        return _jackson_problem(new, old)
    if new.type.is_avro:
        return _avro_problem(new, old, strategy)
    return ""


def _key_value_problem(new: Schema, old: Schema, strategy: str) -> str:
    parts = zip(("key", "value"), key_and_value(new), key_and_value(old), strict=True)
    for name, new_part, old_part in parts:
        if new_part.type is not old_part.type:
            return f"its {name} is of type {new_part.type.name}, not {old_part.type.name}"
        problem = _problem(new_part, old_part, strategy)
        if problem:
            return f"{name}: {problem}"
    return ""


def _jackson_problem(new: Schema, old: Schema) -> str:
    """A document of a client before 2.1 cannot be compared with an Avro definition, so it passes."""
    if not (is_jackson(new.data) and is_jackson(old.data)):
        return ""
    new_id, old_id = jackson_id(new.data), jackson_id(old.data)
    return "" if new_id == old_id else f"its id is {new_id}, not {old_id}"


_verdicts: OrderedDict[bytes, str] = OrderedDict()  # of comparisons, by a hash of what was compared
_verdicts_lock = Lock()  # long comparisons are made in a thread


def _avro_problem(new: Schema, old: Schema, strategy: str) -> str:
    """Comparing takes long, and clients bring the same schemas again and again: verdicts are kept."""
    reads = f"{new.type.name} {strategy in _NEW_READS_OLD} {strategy in _OLD_READS_NEW} {len(new.data)} ".encode()
    key = hashlib.blake2b(reads + new.data + old.data, digest_size=16).digest()
    verdict = _verdicts.get(key)
    if verdict is None:
        verdict = _compared(new, old, strategy)
        with _verdicts_lock:
            _verdicts[key] = verdict
            if len(_verdicts) > SCHEMA_VERDICTS.limit:
                _verdicts.popitem(last=False)
    return verdict


def _compared(new: Schema, old: Schema, strategy: str) -> str:
    from magnetar.broker.schema.avro import unreadable  # a slow import, see there

    parsed_new, parsed_old = parse_avro(new), parse_avro(old)
    if strategy in _NEW_READS_OLD:
        problems = unreadable(reader=parsed_new, writer=parsed_old)
        if problems:
            return f"it cannot read what that version wrote: {problems}"
    if strategy in _OLD_READS_NEW:
        problems = unreadable(reader=parsed_old, writer=parsed_new)
        if problems:
            return f"that version cannot read what it writes: {problems}"
    return ""
