"""The problem that an error of a remote cluster means, for those that look for the cause of a state."""

from __future__ import annotations

from magnetar.client.errors import ClientError, NotAuthenticated, NotAuthorized
from magnetar.replication.model import Problem


class CreationDenied(NotAuthorized):
    """The role may not create or grow a topic, which needs more than to publish."""


_PROBLEMS: tuple[tuple[type[ClientError], Problem], ...] = (
    (NotAuthenticated, Problem.AUTHENTICATION),
    (CreationDenied, Problem.CREATION),
    (NotAuthorized, Problem.AUTHORIZATION),
)


def problem_of(error: ClientError) -> Problem:
    return next((problem for kind, problem in _PROBLEMS if isinstance(error, kind)), Problem.OTHER)
