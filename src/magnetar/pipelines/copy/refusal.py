"""A message that the remote cluster will not have, or that cannot be sent as its way asks for (GR8).

What becomes of it is decided by the way, in `copying`.
"""

from __future__ import annotations


class MessageRefused(Exception):
    """Of one entry; the text says why. The same entry would be refused again until somebody changes something."""
