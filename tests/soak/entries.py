"""Entries that can be checked: a batch whose content follows from its topic, its number and the time it was sent."""

from __future__ import annotations

from struct import Struct

from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob, checksum_ok, metadata_and_payload_start

_HEAD = Struct(">IIQ")  # topic, number of the entry, time sent in nanoseconds
_INDEX = Struct(">I")


class Entries:
    """Builds entries with `messages` messages of `size` bytes each, and checks what arrives."""

    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages
        self._padding = b"." * (size - _HEAD.size - _INDEX.size)
        single = pb.SingleMessageMetadata(payload_size=size).SerializeToString()
        self._prefix = len(single).to_bytes(4, "big") + single
        self._metadata = pb.MessageMetadata(producer_name="soak", publish_time=1, num_messages_in_batch=messages)

    def build(self, topic: int, number: int, time_ns: int) -> bytes:
        self._metadata.sequence_id = number
        self._metadata.publish_time = time_ns // 1_000_000
        self._metadata.partition_key = f"k{number % 7}"
        return build_blob(self._metadata, self._content(topic, number, time_ns))

    def _content(self, topic: int, number: int, time_ns: int) -> bytes:
        head = self._prefix + _HEAD.pack(topic, number, time_ns)
        padding = self._padding
        return b"".join([head + _INDEX.pack(index) + padding for index in range(self.messages)])

    def open(self, blob: bytes) -> tuple[int, int, int]:
        """The topic, number and time of an entry, or ValueError if it is not what was sent."""
        if not checksum_ok(blob):
            raise ValueError("an entry with a wrong checksum arrived")
        _, start = metadata_and_payload_start(blob)
        topic, number, time_ns = _HEAD.unpack_from(blob, start + len(self._prefix))
        if blob[start:] != self._content(topic, number, time_ns):
            raise ValueError(f"entry {number} of topic {topic} arrived with other content")
        return topic, number, time_ns
