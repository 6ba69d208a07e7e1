"""Data source package that Spark discovers by its name, so that `format("pulsar")` works without registration."""

from magnetar.spark.source.source import PulsarSource as DefaultSource

__all__ = ["DefaultSource"]
