"""Tables of Spark's catalog: the options of `create table ... using pulsar options (...)`.

Spark hands a table's options to the source when the table is created without a list of columns, and never again:
queries get the table's columns only. The options are therefore kept in the metadata of the first column, which the
catalog stores. Knows neither topics nor what the options mean.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from pyspark.sql.types import StructField, StructType

from magnetar.spark.errors import InvalidOption

_METADATA = "pulsar.options"
_GIVEN = "option."
_SECRET = "pulsar.client.authparams"
_BY_FILE = "file:"


def created_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being created; None for a read or a write."""
    if "provider" not in options:
        return None
    given = {name.removeprefix(_GIVEN): text for name, text in options.items() if name.startswith(_GIVEN)}
    secret = given.get(_SECRET)
    if secret is not None and not secret.startswith(_BY_FILE):
        raise InvalidOption(
            "option pulsar.client.authParams of a table is kept with its columns, and in files written from it: give"
            f" the token as {_BY_FILE}///path"
        )
    return given


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema of a table that keeps its options."""
    first, *others = schema.fields
    kept = StructField(first.name, first.dataType, first.nullable, {_METADATA: json.dumps(dict(options))})
    return StructType([kept, *others])


def options_of(options: Mapping[str, str], schema: StructType, without: Collection[str] = ()) -> Mapping[str, str]:
    """The options of a read or a write: those given, or those of the table that the columns are of.

    A table's options are for both: those `without` which one is done are left out.
    """
    if options:
        return options
    for field in schema.fields:
        if _METADATA in field.metadata:
            kept = json.loads(field.metadata[_METADATA])
            return {name: text for name, text in kept.items() if name.lower() not in without}
    raise InvalidOption(
        "there are no options: Spark keeps those of a table only if it is created without a list of columns"
        " (create table ... using pulsar options (...)); a temporary view has them always"
    )
