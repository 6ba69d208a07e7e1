"""What a broker hands to the pipelines process that it started, over the pipe between them and nowhere else.

Both sides know this form. The credentials are opaque here: what they are for is known by those who read them.
"""

from __future__ import annotations

import msgspec


class Handover(msgspec.Struct, frozen=True, rename="camel"):
    """`token` is that of the role `$pipelines`, for the broker itself; `version` differs after every change of
    `credentials`, which are those for remote clusters."""

    token: str
    version: str
    credentials: msgspec.Raw

    def __repr__(self) -> str:
        return f"Handover(version={self.version!r})"
