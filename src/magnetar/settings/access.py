"""Settings of access: TLS, authentication and authorization.

They are a part of `Settings`, which inherits them.
"""

from __future__ import annotations

import msgspec


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Listed after the other settings on the reference page, before those that protect."""
