"""Data source package that Spark discovers by its name, so that `format("pulsar")` works without registration.

Spark reports a package that cannot be imported as a missing data source, so on a Spark that is too old the source is
one that raises the reason.
"""

from typing import Any

try:
    from magnetar.spark.source.source import PulsarSource as DefaultSource
except ImportError as error:
    from pyspark.sql.datasource import DataSource

    _reason = str(error)

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        @classmethod
        def name(cls) -> str:
            return "pulsar"

        def __init__(self, options: Any) -> None:
            raise ImportError(_reason)


__all__ = ["DefaultSource"]
