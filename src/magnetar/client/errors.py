"""Every error a user of the client can see. Owns the way from a code of the protocol or an HTTP status to a class.

`code` is the protocol's ServerError where a broker gave one, `status` the HTTP status where one came by HTTP; the text
is the broker's own, after what was asked for. What is `retriable` may work when the same is asked again.
"""

from __future__ import annotations

from magnetar.errors import MagnetarError


class ClientError(MagnetarError):
    """Root of the client's errors."""

    retriable = False

    def __init__(self, text: str, *, code: int | None = None, status: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.status = status


class InvalidArgument(ClientError):
    """The caller's own mistake, found before anything was sent."""


class ConnectionLost(ClientError):
    """A broker cannot be reached, or a connection ended while something was waited for."""

    retriable = True


class Unreachable(ConnectionLost):
    """No connection can be opened: nothing listens at the address, or TLS failed."""


class Interrupted(ConnectionLost):
    """A connection that had worked ended; the broker may be there still, or again."""


class ProtocolBroken(ConnectionLost):
    """What came from the other side is not the protocol; the connection was closed."""

    retriable = False


class Timeout(ClientError):
    """Something did not come in time; the text says what."""

    retriable = True


class Closed(ClientError):
    """The client, producer, reader or consumer was closed before or during the call."""


class ServerFailure(ClientError):
    """The broker failed, or answered in a way that has no class of its own."""


class NotAuthenticated(ClientError):
    pass


class NotAuthorized(ClientError):
    pass


class NotFound(ClientError):
    """A topic, a subscription, a namespace or a tenant does not exist."""


class NamespaceNotFound(NotFound):
    """Of a topic that was asked for or to be created; its tenant may be missing as well."""


class NotSupported(ClientError):
    """This client or the broker cannot do what was asked for; nothing was sent or changed."""


class NotAllowed(ClientError):
    """The broker understands the request and refuses it."""


class ConsumerAssignFailed(NotAllowed):
    """The broker assigns nothing to this consumer: its key ranges overlap, or its route policy has changed."""


class InvalidName(ClientError):
    pass


class Conflict(ClientError):
    """It exists already, or is in use."""


class ConsumerBusy(ClientError):
    """Another consumer has the subscription exclusively."""


class ProducerBusy(ClientError):
    """Another producer has this name or exclusive access to the topic."""


class ProducerFenced(ClientError):
    """Another producer took exclusive access; a new producer has to be made."""


class ServiceNotReady(ClientError):
    retriable = True


class TooManyRequests(ClientError):
    retriable = True


class QuotaExceeded(ClientError):
    """The backlog quota of the namespace or topic is used up."""


class ChecksumRefused(ClientError):
    """A message was damaged on its way to the broker."""


class TopicTerminated(ClientError):
    pass


class IncompatibleSchema(ClientError):
    pass


class MessageTooLarge(ClientError):
    pass


class UnreadableMessage(ClientError):
    """A message that is corrupt, or that this client cannot open; reading goes on after it.

    `message_id` (a `MessageId`) and `topic` say which one.
    """

    def __init__(self, text: str, *, topic: str, message_id: object) -> None:
        super().__init__(text)
        self.topic = topic
        self.message_id = message_id


class EndOfTopic(ClientError):
    """The topic was terminated and every message of it has been read."""


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
