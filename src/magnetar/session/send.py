"""Checks of a SEND that cost more than a comparison, and the error of one that is refused.

The hot path itself is in `session`: it calls these for batches, for large entries and for errors only.
"""

from __future__ import annotations

from magnetar.bounds import MESSAGES_PER_BATCH, NUMBER
from magnetar.errors import ChecksumMismatch, MagnetarError, MessageTooLarge, NotAllowed
from magnetar.wire.metadata import BAD_CHECKSUM, MALFORMED, may_have_messages, payload_of

_MESSAGES_MAX = MESSAGES_PER_BATCH.limit


def fault_of(
    sequence_id: int, highest_id: int, messages: int, blob: bytes | None, found: int, size_max: int
) -> MagnetarError:
    """The error of an invalid SEND."""
    if blob is None:
        return NotAllowed(f"message with sequence id {sequence_id} has no payload")
    if found == BAD_CHECKSUM:
        return ChecksumMismatch(f"checksum of message with sequence id {sequence_id} does not match")
    if found == MALFORMED:
        return NotAllowed(f"metadata of message with sequence id {sequence_id} is truncated")
    if is_too_large(blob, size_max):
        return MessageTooLarge(f"entry of {len(blob)} bytes exceeds maxMessageSize {size_max}")
    if max(sequence_id, highest_id) > NUMBER.limit:
        return NotAllowed(f"sequence id {max(sequence_id, highest_id)} exceeds {NUMBER.limit}")
    if not 0 < messages <= _MESSAGES_MAX:
        return NotAllowed(f"batch of {messages} messages: must be 1 to {_MESSAGES_MAX}")
    if messages > size_max:
        return NotAllowed(f"entry of {len(blob)} bytes cannot hold {messages} messages")
    if messages != 1 and not may_have_messages(blob, messages):
        return NotAllowed(f"SEND of {messages} messages, but its metadata does not have {messages} in the batch")
    return NotAllowed("transactions are not supported by this broker")


def is_batch_of(messages: int, blob: bytes, size_max: int) -> bool:
    """Whether a SEND with more than one message, or with less, is true."""
    # Uncompressed, every message takes at least a byte.
    return 1 < messages <= _MESSAGES_MAX and messages <= size_max and may_have_messages(blob, messages)


def is_too_large(blob: bytes, size_max: int) -> bool:
    # Clients measure the payload alone; the metadata comes on top, within the padding of the frame.
    return len(payload_of(blob)) > size_max
