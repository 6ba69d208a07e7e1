"""Function names: `module:name` of a Python function, which the pipelines process imports. Imports nothing."""

from __future__ import annotations

import re

from magnetar.errors import InvalidSetting

_SIZE_MAX = 500
_PART = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_NAME = re.compile(f"{_PART}:{_PART}")


def check_function(text: str) -> None:
    """Raises `InvalidSetting`."""
    if len(text) > _SIZE_MAX or not _NAME.fullmatch(text):
        raise InvalidSetting(f"function {text[:100]!r} is not of the form module:name")
