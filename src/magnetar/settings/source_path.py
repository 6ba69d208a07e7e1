"""The file that a setting names: `file:///path` or a path; anything else has the content itself.

Owns this one decision, for the rule of private files as for the readers. Opens no file.
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from magnetar.errors import InvalidSetting


def path_of(text: str, setting: str) -> str | None:
    """None for content, as `data:` or base64; raises `InvalidSetting` for a `file:` without a path of this machine."""
    if text.startswith("file:"):
        parts = urlsplit(text.strip())
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise InvalidSetting(f"{setting} begins with file: but is not of the form file:///path")
        return unquote(parts.path)
    return None if text.startswith("data:") or not os.path.exists(text) else text
