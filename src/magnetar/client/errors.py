"""Every error of the client. Owns the class for each code of the protocol and each HTTP status.

`code` is the ServerError of the protocol, `status` the HTTP status, where the broker sent one; the text names the
request, and then has the broker's own text. A `retriable` error may pass: the same request may succeed later.
"""

from __future__ import annotations

from magnetar.errors import MagnetarError


class ClientError(MagnetarError):
    """The root of the client's errors."""

    retriable = False

    def __init__(self, text: str, *, code: int | None = None, status: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.status = status


class InvalidArgument(ClientError):
    """An argument is invalid; nothing was sent."""


class ConnectionLost(ClientError):
    """A broker cannot be reached, or a connection ended during a request."""

    retriable = True


class Unreachable(ConnectionLost):
    """No connection can be opened: nothing listens at the address, or TLS failed."""


class Interrupted(ConnectionLost):
    """A working connection ended; the broker may still be there, or be back soon."""


class ProtocolBroken(ConnectionLost):
    """The data received is not the protocol; the connection was closed."""

    retriable = False


class WrongPort(ProtocolBroken):
    """An HTTP port, where the binary protocol was expected."""


class Timeout(ClientError):
    """A request or wait took too long; the text names it."""

    retriable = True


class Closed(ClientError):
    """The client, producer, reader or consumer was closed before or during the call."""


class ServerFailure(ClientError):
    """The broker failed, or sent a code or status without its own class."""


class NotAuthenticated(ClientError):
    pass


class NotAuthorized(ClientError):
    pass


class NotFound(ClientError):
    """A topic, a subscription, a namespace or a tenant does not exist."""


class NamespaceNotFound(NotFound):
    """The namespace of a topic does not exist, and perhaps not its tenant either."""


class NotSupported(ClientError):
    """The client or the broker does not support the request; nothing was changed."""


class NeedsRest(NotSupported):
    """The binary protocol has no command for the request, and the client has no HTTP address."""


class NotAllowed(ClientError):
    """The broker rejected a request that it understands."""


class ConsumerAssignFailed(NotAllowed):
    """The broker assigns nothing to this consumer: its key ranges overlap, or its route policy has changed."""


class InvalidName(ClientError):
    pass


class Conflict(ClientError):
    """The resource exists already, or is in use."""


class ConsumerBusy(ClientError):
    """Another consumer has the subscription exclusively."""


class ProducerBusy(ClientError):
    """Another producer has the name, or exclusive access to the topic."""


class ProducerFenced(ClientError):
    """Another producer took exclusive access; this one cannot be used any more."""


class ServiceNotReady(ClientError):
    retriable = True


class TooManyRequests(ClientError):
    retriable = True


class QuotaExceeded(ClientError):
    """The backlog quota of the namespace or topic is exceeded."""


class ChecksumRefused(ClientError):
    """A message was corrupted on its way to the broker."""


class TopicTerminated(ClientError):
    pass


class IncompatibleSchema(ClientError):
    pass


class MessageTooLarge(ClientError):
    pass


class UnreadableMessage(ClientError):
    """A message that is corrupt, or that this client cannot decode; the next read continues after it.

    `topic` and `message_id` (a `MessageId`) identify it.
    """

    def __init__(self, text: str, *, topic: str, message_id: object) -> None:
        super().__init__(text)
        self.topic = topic
        self.message_id = message_id


class EndOfTopic(ClientError):
    """The topic is terminated and all its messages have been read."""


_OF_CODE: dict[int, type[ClientError]] = {
    3: NotAuthenticated,
    4: NotAuthorized,
    5: ConsumerBusy,
    6: ServiceNotReady,
    7: QuotaExceeded,
    8: QuotaExceeded,
    9: ChecksumRefused,
    10: NotSupported,
    11: NotFound,
    12: NotFound,
    13: NotFound,
    14: TooManyRequests,
    15: TopicTerminated,
    16: ProducerBusy,
    17: InvalidName,
    18: IncompatibleSchema,
    19: ConsumerAssignFailed,
    22: NotAllowed,
    25: ProducerFenced,
}

_OF_STATUS: dict[int, type[ClientError]] = {
    400: NotAllowed,
    401: NotAuthenticated,
    403: NotAuthorized,
    404: NotFound,
    405: NotSupported,
    406: NotAllowed,
    409: Conflict,
    412: NotAllowed,
    422: NotAllowed,
    429: TooManyRequests,
    501: NotSupported,
    503: ServiceNotReady,
}


def of_code(code: int, text: str) -> ClientError:
    """The error for a ServerError of the protocol."""
    return _OF_CODE.get(code, ServerFailure)(text, code=code)


def of_status(status: int, text: str) -> ClientError:
    """The error for an HTTP status."""
    return _OF_STATUS.get(status, ServerFailure)(text, status=status)
