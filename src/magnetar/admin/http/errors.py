"""Errors of the HTTP interface alone, with statuses that have no code in the binary protocol."""

from __future__ import annotations

from magnetar.errors import MagnetarError


class BadRequest(MagnetarError):
    """The body, a parameter or the path cannot be parsed."""

    http_status = 400


class Forbidden(MagnetarError):
    """An unknown cluster, or one that the tenant may not use; a request that a web page may have made."""

    http_status = 403


class ClusterNotFound(MagnetarError):
    http_status = 404


class BrokerNotFound(MagnetarError):
    """The request names another broker."""

    http_status = 404


class MessageNotFound(MagnetarError):
    http_status = 404


class OperationNotAllowed(MagnetarError):
    """Not allowed for this kind of topic, or on this broker."""

    http_status = 405


class DomainNotAcceptable(MagnetarError):
    """A request for a non-persistent topic that needs a persistent one."""

    http_status = 406


class Conflict(MagnetarError):
    """The existing state does not allow the change."""

    http_status = 409


class BodyTooLarge(MagnetarError):
    http_status = 413


class BodyTypeRefused(MagnetarError):
    """A body that is not JSON."""

    http_status = 415


class PartitionCountRefused(MagnetarError):
    """A number of partitions that the topic cannot have."""

    http_status = 422


class TooManyWaiting(MagnetarError):
    """As many requests of this kind as may wait do wait."""

    http_status = 429


class Unsupported(MagnetarError):
    """A request of Pulsar's interface that this broker does not serve."""

    http_status = 501


class Unavailable(MagnetarError):
    """The broker does not work, or not at the moment."""

    http_status = 503
