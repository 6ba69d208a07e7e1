"""Errors of requests to the broker, each one sentence that a page can show."""

from __future__ import annotations

from magnetar.errors import MagnetarError

NO_SUCH_PATH = (404, 405, 501)


class BrokerError(MagnetarError):
    """No answer, or none that can be used."""


class BrokerUnreachable(BrokerError):
    """The broker does not answer."""


class RequestRefused(BrokerError):
    """The broker answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{reason} (HTTP {status})")
        self.status = status
        self.reason = reason

    @property
    def is_missing(self) -> bool:
        """What was asked for does not exist, or the broker does not have the path."""
        return self.status in NO_SUCH_PATH


class LoginRefused(RequestRefused):
    """The broker wants a login, or does not accept this one any more."""


class RightRefused(RequestRefused):
    """The role of the session may not do this."""
