"""Errors that clients and operators see, with their wire code and HTTP status.

The session turns an error into a reply of the protocol, the admin room into a status and a `reason`, the command line
into one line on stderr. Nothing below those three catches them.
"""

from __future__ import annotations


class MagnetarError(Exception):
    """Root of all errors. `wire_code` is a value of the protocol's ServerError."""

    wire_code = 0  # UnknownError
    http_status = 500


class InvalidSetting(MagnetarError):
    http_status = 412


class AuthenticationFailed(MagnetarError):
    """A client did not prove who it is. The text never has what it showed; `code` is the reason, for metrics."""

    wire_code = 3
    http_status = 401

    def __init__(self, text: str, code: str = "INVALID_AUTH_DATA") -> None:
        super().__init__(text)
        self.code = code


class ForeignToken(AuthenticationFailed):
    """The keys of a provider did not sign a token, so it may be for another provider."""


class RightMissing(MagnetarError):
    """A role lacks a right."""

    wire_code = 4
    http_status = 403


class InvalidName(MagnetarError):
    wire_code = 17  # InvalidTopicName
    http_status = 412


class NotAllowed(MagnetarError):
    wire_code = 22
    http_status = 412


class NotSupported(MagnetarError):
    wire_code = 22
    http_status = 501


class MetadataInvalid(MagnetarError):
    wire_code = 1
    http_status = 412


class TopicNotFound(MagnetarError):
    wire_code = 11
    http_status = 404


class NamespaceNotFound(TopicNotFound):
    """TopicNotFound on the wire, where namespaces have no code."""


class TenantNotFound(TopicNotFound):
    pass


class SubscriptionNotFound(MagnetarError):
    wire_code = 12
    http_status = 404


class ConsumerNotFound(MagnetarError):
    wire_code = 13
    http_status = 404


class AlreadyExists(MagnetarError):
    wire_code = 22
    http_status = 409


class PipelineNotFound(MagnetarError):
    """There is no declared pipeline of this name."""

    http_status = 404


class PipelineConflict(MagnetarError):
    """The state of a declared pipeline, or another one, does not allow the change."""

    http_status = 409


class PartitionCountInvalid(MagnetarError):
    wire_code = 22
    http_status = 406


class TopicTerminated(MagnetarError):
    wire_code = 15
    http_status = 409


class TopicBusy(MagnetarError):
    """Deleting a topic or namespace that still has producers or consumers."""

    wire_code = 22
    http_status = 412


class ProducerBusy(MagnetarError):
    wire_code = 16
    http_status = 409


class ProducerFenced(MagnetarError):
    wire_code = 25
    http_status = 409


class ConsumerBusy(MagnetarError):
    wire_code = 5
    http_status = 412


class ConsumerAssignFailed(MagnetarError):
    """Sticky key ranges that overlap or lie outside the hash space."""

    wire_code = 19
    http_status = 412


class RouteChanged(ConsumerAssignFailed):
    """A consumer copies under a route policy that is no longer in force. Pipelines recognise the code."""


class QuotaExceeded(MagnetarError):
    """The backlog exceeds its quota and the policy is producer_exception."""

    wire_code = 8  # ProducerBlockedQuotaExceededException
    http_status = 412


class QuotaHold(MagnetarError):
    """The backlog exceeds its quota and the policy is producer_request_hold: the client waits and retries."""

    wire_code = 7  # ProducerBlockedQuotaExceededError
    http_status = 412


class ChecksumMismatch(MagnetarError):
    wire_code = 9


class MessageTooLarge(NotAllowed):
    pass


class ServiceNotReady(MagnetarError):
    """The topic is being unloaded, or a consumer is still disconnecting: the client retries by itself."""

    wire_code = 6
    http_status = 503


class SchemaNotFound(TopicNotFound):
    pass


class IncompatibleSchema(MagnetarError):
    """The schema is not compatible with those of the topic, or the topic has one and none is given."""

    wire_code = 18
    http_status = 409


class InvalidSchema(MagnetarError):
    """The definition of a schema is invalid or too large."""

    wire_code = 18  # as in Apache Pulsar: older clients know no other code
    http_status = 422


class BackupFailed(MagnetarError):
    """A backup cannot be made, read or restored."""


class BackupInTheWay(BackupFailed):
    """There is a backup that was not finished."""

    http_status = 409


class DataCheckFailed(MagnetarError):
    """A data folder cannot be opened to be checked or repaired."""


class Damaged(MagnetarError):
    """What is stored cannot be read. Only the topic, subscription or schema that it belongs to is refused."""

    wire_code = 2  # PersistenceError
    http_status = 500


class TopicDamaged(Damaged):
    pass


class SubscriptionDamaged(Damaged):
    pass


class SchemaDamaged(Damaged):
    pass


class EntriesDamaged(Damaged):
    """Entries of a topic cannot be read, from `first` on; `cause` is the error of the storage or of the decoder."""

    def __init__(self, first: int, text: str, cause: Exception) -> None:
        super().__init__(text)
        self.first = first
        self.cause = cause
