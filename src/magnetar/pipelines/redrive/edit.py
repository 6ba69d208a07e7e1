"""Edits of a dead letter on its way back: assigned values, and a Python function.

Owns how an edited payload becomes bytes again, by the schema that it was written with: everything that is not edited
stays as it is. Knows no topics.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from magnetar.errors import InvalidSetting, MagnetarError
from magnetar.pipelines.redrive.assignments import ColumnAssignment
from magnetar.schema.types import Schema, SchemaType
from magnetar.schema.values import UndecodableValue, decode_value


class EditFailed(MagnetarError):
    """A letter that an edit does not fit: it stays where it is, with this reason in the counts."""


@dataclass
class Letter:
    """A dead letter as a function of a redrive sees it, and may change it.

    `payload` is decoded by its schema: the values of JSON or Avro, text, or bytes where there is no schema and no JSON.
    """

    payload: Any
    key: str | bytes | None = None
    properties: dict[str, str] = field(default_factory=dict)
    event_time_ms: int | None = None
    ordering_key: bytes | None = None
    topic: str = ""
    subscription: str = ""
    reason: str = ""
    error: str = ""
    exception: str = ""
    generation: int = 0
    message_id: str = ""


LetterFunction = Callable[[Letter], Letter | None]
"""Returns the letter to send; None leaves it where it is."""


def load_function(name: str) -> LetterFunction:
    """`module:function`; raises `InvalidSetting`."""
    module_name, separator, function_name = name.partition(":")
    if not (separator and module_name and function_name):
        raise InvalidSetting(f"function {name!r} is not of the form module:function")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module is the user's, and may raise anything
        raise InvalidSetting(
            f"function {name}: {module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found = module
    for part in function_name.split("."):
        found = getattr(found, part, None)  # type: ignore[assignment]
    if not callable(found):
        known = ", ".join(sorted(one for one in vars(module) if callable(getattr(module, one)) and one[0] != "_")[:10])
        raise InvalidSetting(
            f"function {name}: {module_name} has no function {function_name}; it has {known or 'none'}"
        )
    return found


class PayloadCodec:
    """Payloads of one schema as Python values, and back; without a schema JSON where it is JSON, else text or bytes."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._avro: Any = None
        if schema is not None and schema.type is SchemaType.AVRO:
            import fastavro

            try:
                self._avro = fastavro.parse_schema(json.loads(schema.data))
            except Exception as error:
                raise EditFailed(f"its schema cannot be used: {error}") from error

    @property
    def _type(self) -> SchemaType:
        return SchemaType.NONE if self._schema is None else self._schema.type

    def decode(self, payload: bytes | None) -> Any:
        """Raises `EditFailed`."""
        if payload is None:
            return None
        try:
            if self._avro is not None:
                return self._decode_avro(payload)
            if self._type is SchemaType.JSON:
                return json.loads(payload)
            if self._type in (SchemaType.NONE, SchemaType.BYTES):
                return _unschemed(payload)
            assert self._schema is not None
            return decode_value(self._schema, payload)
        except (ValueError, UndecodableValue, EOFError, IndexError, KeyError) as error:
            raise EditFailed(f"its payload does not match its schema: {error}") from error

    def _decode_avro(self, payload: bytes) -> Any:
        import fastavro

        stream = io.BytesIO(payload)
        value = fastavro.schemaless_reader(stream, self._avro, None)
        if stream.tell() != len(payload):
            raise ValueError(f"{len(payload) - stream.tell()} bytes after the record")
        return value

    def encode(self, value: Any) -> bytes | None:
        """Raises `EditFailed`."""
        if value is None:
            return None
        if self._avro is not None:
            return self._encode_avro(value)
        if self._type is SchemaType.JSON:
            return _json(value)
        if self._type in (SchemaType.NONE, SchemaType.BYTES, SchemaType.STRING):
            if isinstance(value, bytes):
                return value
            return value.encode() if isinstance(value, str) else _json(value)
        raise EditFailed(f"payloads of type {self._type.name} cannot be edited: assign value, their bytes")

    def _encode_avro(self, value: Any) -> bytes:
        import fastavro

        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, self._avro, _fitting(value, self._avro, {}), strict_allow_default=True)
        except Exception as error:  # fastavro raises what the value happens to lack
            raise EditFailed(f"the edited payload does not match its schema: {error}") from error
        return stream.getvalue()


def _unschemed(payload: bytes) -> Any:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise EditFailed(f"the edited payload is no JSON: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


# -- assigned values in an Avro record


def _fitting(value: Any, schema: Any, named: dict[str, Any]) -> Any:
    """Values of JSON as Avro's logical types: texts become dates, times and decimals."""
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if isinstance(schema, list):
        return _fitting_branch(value, schema, named)
    if not isinstance(schema, dict):
        return _fitting_plain(value, schema)
    if schema.get("type") in ("record", "error"):
        named[schema["name"]] = schema
        if not isinstance(value, Mapping):
            return value
        return {
            one["name"]: _fitting(value[one["name"]], one["type"], named)
            for one in schema["fields"]
            if one["name"] in value
        }
    if schema.get("type") == "array" and isinstance(value, list):
        return [_fitting(one, schema["items"], named) for one in value]
    if schema.get("type") == "map" and isinstance(value, Mapping):
        return {key: _fitting(one, schema["values"], named) for key, one in value.items()}
    if schema.get("type") in ("enum", "fixed"):
        named[schema["name"]] = schema
    return _fitting_logical(value, schema)


def _fitting_branch(value: Any, branches: list[Any], named: dict[str, Any]) -> Any:
    if value is None:
        return None
    others = [one for one in branches if one != "null"]
    return _fitting(value, others[0], named) if len(others) == 1 else value


def _fitting_plain(value: Any, kind: str) -> Any:
    if kind in ("float", "double") and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in ("int", "long") and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind == "bytes" and isinstance(value, str):
        return value.encode()
    return value


def _fitting_logical(value: Any, schema: dict[str, Any]) -> Any:
    logical = schema.get("logicalType")
    if logical == "decimal" and isinstance(value, int | float | str):
        return Decimal(str(value))
    if not isinstance(value, str):
        return _fitting_plain(value, schema["type"]) if logical is None else value
    if logical == "date":
        return date.fromisoformat(value)
    if logical in ("time-millis", "time-micros"):
        return time.fromisoformat(value)
    if logical in ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"):
        moment = datetime.fromisoformat(value)
        if logical.startswith("local"):
            return moment.replace(tzinfo=None)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if logical == "uuid":
        return UUID(value)
    return _fitting_plain(value, schema["type"])


# -- edits


@dataclass(frozen=True)
class Edits:
    """What happens to each letter: first the assignments, whose values Spark computed, then the function."""

    assignments: tuple[ColumnAssignment, ...] = ()
    function: LetterFunction | None = None

    @property
    def decodes(self) -> bool:
        return self.function is not None or any(one.column == "payload" for one in self.assignments)

    def apply(self, letter: Letter, assigned: str | None) -> Letter | None:
        """Raises `EditFailed`. The payload is a value, unless `value` was assigned: then it is bytes."""
        values = json.loads(assigned) if assigned else {}
        for number, one in enumerate(self.assignments):
            _assign(letter, one, values.get(str(number)))
        if self.function is None:
            return letter
        try:
            found = self.function(letter)
        except Exception as error:  # of the user
            raise EditFailed(f"the function raised {type(error).__name__}: {error}") from error
        if found is not None and not isinstance(found, Letter):
            raise EditFailed(f"the function returned {type(found).__name__}, neither a letter nor None")
        return found


def _assign(letter: Letter, one: ColumnAssignment, value: Any) -> None:
    if one.column == "payload":
        letter.payload = _with_field(letter.payload, one.path, value)
    elif one.column == "properties":
        if value is None:
            letter.properties.pop(one.path[0], None)
        else:
            letter.properties[one.path[0]] = _text(value)
    elif one.column == "event_time":
        letter.event_time_ms = _time_ms(value)
    elif one.column == "value":
        letter.payload = None if value is None else _text(value).encode()
    elif one.column == "key":
        letter.key = None if value is None else _text(value)
    else:
        letter.ordering_key = None if value is None else _text(value).encode()


def _with_field(payload: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    if payload is None:
        payload = {}
    if not isinstance(payload, dict):
        raise EditFailed(f"its payload has no fields, so {'.'.join(path)} cannot be assigned")
    return {**payload, path[0]: _with_field(payload.get(path[0]), path[1:], value)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _time_ms(value: Any) -> int | None:
    """From milliseconds, or the text of a timestamp."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise EditFailed(f"event_time {value!r} is neither a timestamp nor a number of milliseconds") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
