"""A principal: the role that a client has proved to have, and until when.

Knows neither how it was proved nor what it may do.
"""

from __future__ import annotations

import msgspec

INTERNAL_ROLE = "$pipelines"
"""The role of the broker's own pipelines process. No provider gives it to anyone else."""


class Principal(msgspec.Struct, frozen=True):
    """`method` is the authentication method by Pulsar's name: token, basic, tls, or none, anonymous, internal.

    `original` is the role on whose behalf a proxy acts. Without `expires_ms` it is valid as long as the connection.
    """

    role: str
    method: str
    expires_ms: int | None = None
    original: str = ""


class Author(msgspec.Struct, frozen=True, omit_defaults=True):
    """The role that set a policy, as it is kept: asked for the right again whenever the broker acts by the policy."""

    role: str
    original: str = ""

    @staticmethod
    def of(principal: Principal) -> Author:
        return Author(principal.role, principal.original)

    @property
    def principal(self) -> Principal:
        return Principal(self.role, "kept", original=self.original)


NO_ONE_ASKED = Principal("", "none")
"""The principal of every client of a broker without authentication."""
