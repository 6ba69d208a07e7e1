"""Payloads as text: a value of a schema, JSON, text, or bytes in hexadecimal. Bounded, and never markup."""

from __future__ import annotations

import json
import unicodedata

from magnetar.console.layout.elements import box, text
from magnetar.console.options import PAYLOAD_SHOWN_MAX
from magnetar.schema.types import Schema, SchemaType
from magnetar.schema.values import UndecodableValue, decode_value

HEX_SHOWN_MAX = 2048
_HEX_ROW = 16
_AS_THEY_ARE = (SchemaType.NONE, SchemaType.BYTES, SchemaType.STRING, SchemaType.JSON)
_TEXT_CONTROLS = "\n\r\t"


def described(payload: bytes, schema: Schema | None = None, key: bytes | None = None) -> tuple[str, str]:
    """The kind of a payload, and its text."""
    if not payload:
        return "empty", ""
    if schema is not None and schema.type not in _AS_THEY_ARE and len(payload) <= PAYLOAD_SHOWN_MAX:
        try:
            return schema.type.name, _pretty(decode_value(schema, payload, key))
        except (UndecodableValue, ValueError, RecursionError):
            pass
    try:
        content = payload[:PAYLOAD_SHOWN_MAX].decode(
            "utf-8", "strict" if len(payload) <= PAYLOAD_SHOWN_MAX else "ignore"
        )
    except UnicodeDecodeError:
        return "bytes", hex_dump(payload)
    if any(unicodedata.category(one) == "Cc" and one not in _TEXT_CONTROLS for one in content[:1000]):
        return "bytes", hex_dump(payload)
    if content.lstrip()[:1] in ("{", "[") and len(payload) <= PAYLOAD_SHOWN_MAX:
        try:
            return "JSON", _pretty(json.loads(content))
        except (ValueError, RecursionError):
            pass
    return "text", content


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def hex_dump(payload: bytes) -> str:
    """Offset, bytes and their printable characters."""
    rows = []
    for offset in range(0, min(len(payload), HEX_SHOWN_MAX), _HEX_ROW):
        part = payload[offset : offset + _HEX_ROW]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{offset:06x}  {part.hex(' '):<{_HEX_ROW * 3 - 1}}  {printable}")
    return "\n".join(rows)


def show_payload(payload: bytes, schema: Schema | None = None, key: bytes | None = None) -> None:
    kind, content = described(payload, schema, key)
    text("p", f"Payload: {kind}, {len(payload):,} bytes", "hint")
    if not payload:
        return
    preformatted(content, "Payload")
    if len(payload) > PAYLOAD_SHOWN_MAX or (kind == "bytes" and len(payload) > HEX_SHOWN_MAX):
        text("p", "Only its beginning is shown.", "hint")
    if kind != "bytes":
        with box("details"):
            text("summary", "Hexadecimal")
            preformatted(hex_dump(payload), "Payload in hexadecimal")


def preformatted(content: str, name: str) -> None:
    """It scrolls, so it can have the focus."""
    shown = text("pre", "", "payload", tabindex="0", role="region", aria_label=name)
    shown.text = content[:PAYLOAD_SHOWN_MAX]
