"""The refusal of a message: by the remote cluster, or because its route policy cannot be applied (GR8).

The route policy decides what happens to it, in `copier`.
"""

from __future__ import annotations

from magnetar.replication.model import Problem


class MessageRefused(Exception):
    """One entry, with the reason. It would be refused again until an operator changes something."""

    def __init__(self, reason: str, problem: Problem = Problem.MESSAGE) -> None:
        super().__init__(reason)
        self.problem = problem
