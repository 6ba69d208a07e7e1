"""Text in a request beside its path and body: parameters and headers, which have to be UTF-8.

What is not is refused with its name, never changed: a name with a replacement character is that of something else.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from magnetar.admin.http.errors import BadRequest

_NAME_SHOWN_MAX = 100


def query_of(raw: bytes) -> dict[str, str]:
    """The parameters of a query; of one that is there several times, the last."""
    # In Latin-1 every byte is a character, so that nothing is replaced.
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    return {_text(name, "the name of parameter", name): _text(value, "parameter", name) for name, value in pairs}


def header_of(request: Request, name: str) -> str:
    """A header, empty if it is missing."""
    return _text(request.headers.get(name, ""), "header", name)


def login_header_of(request: Request, name: str) -> str:
    """A header that says who the client is; raises if there are two: a proxy may have checked the other one."""
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise BadRequest(f"a request has one {name}, not {len(values)}")
    return values[0] if values else ""


def _text(latin: str, what: str, name: str) -> str:
    try:
        return latin if latin.isascii() else latin.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        shown = name.encode("latin-1").decode(errors="backslashreplace")[:_NAME_SHOWN_MAX]
        raise BadRequest(f"{what} {shown} is not UTF-8") from error
