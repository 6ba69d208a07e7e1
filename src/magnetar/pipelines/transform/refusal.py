"""The refusal of a message: by the remote cluster, or because its route policy cannot be applied (GR8).

The route policy decides what happens to it, in `copier`.
"""

from __future__ import annotations


class MessageRefused(Exception):
    """One entry, with the reason. It would be refused again until an operator changes something."""
