"""The console's own files for browsers. Everything that a page loads is from this process."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

from magnetar.version import __version__

FOLDER = Path(__file__).parent.parent / "assets"
_BASE = f"/console/{__version__}"
STYLE_PATH = f"{_BASE}/style.css"
SCRIPT_PATH = f"{_BASE}/page.js"
ICON_PATH = f"{_BASE}/icon.svg"
FILES = {
    STYLE_PATH: ("style.css", "text/css"),
    SCRIPT_PATH: ("page.js", "text/javascript"),
    ICON_PATH: ("icon.svg", "image/svg+xml"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
}


def asset(path: str) -> Response | None:
    if path not in FILES:
        return None
    name, type_ = FILES[path]
    return Response((FOLDER / name).read_bytes(), media_type=type_, headers={"Cache-Control": "no-cache"})
