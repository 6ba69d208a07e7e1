"""Refusals that only HTTP knows: statuses for which the binary protocol has no word."""

from __future__ import annotations

from magnetar.errors import MagnetarError


class BadRequest(MagnetarError):
    """The body, a parameter or the path cannot be read."""

    http_status = 400


class Forbidden(MagnetarError):
    """A cluster that is not known, or that the tenant may not use."""

    http_status = 403


class ClusterNotFound(MagnetarError):
    http_status = 404


class BrokerNotFound(MagnetarError):
    """Another broker than this one is asked for."""

    http_status = 404


class MessageNotFound(MagnetarError):
    http_status = 404


class OperationNotAllowed(MagnetarError):
    """Not for a topic of this kind, or not on this broker at all."""

    http_status = 405


class DomainNotAcceptable(MagnetarError):
    """Asked of a non-persistent topic what only a persistent one can do."""

    http_status = 406


class Conflict(MagnetarError):
    """What is there does not allow it."""

    http_status = 409


class BodyTooLarge(MagnetarError):
    http_status = 413


class PartitionCountRefused(MagnetarError):
    """A partitioned topic cannot get this number of partitions."""

    http_status = 422
