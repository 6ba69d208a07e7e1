"""Spark looks for packages of this name: with it, `format("pulsar")` works in every session without registering."""

from magnetar.spark.source.source import PulsarSource as DefaultSource

__all__ = ["DefaultSource"]
