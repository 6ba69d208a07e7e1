"""The documentation as a site: its folder in the wheel, or where `make site` put it in a checkout. Knows no HTTP."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "site"


def folder() -> Path | None:
    """The folder with `index.html`; None if the package was built without the site."""
    return _FOLDER if (_FOLDER / "index.html").is_file() else None
