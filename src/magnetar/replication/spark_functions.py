"""Functions of Spark SQL that a condition may call: an allow-list, so that a function that Spark gets later is refused.

Each is a function of one message: it reads its arguments and nothing else. Left out are those that run other code
(reflect, user-defined functions), read the session, the environment or files (current_user, version, from_protobuf),
fail on purpose (raise_error), differ from call to call (rand, uuid), are over many rows (aggregates, windows,
generators), or make large values of small ones (sequence, format_string, and transform, which may make one for each
element). Owns also which arguments of the others must be literals; `where_limits` applies these tables. A broker has no
Spark to ask: a test compares the names with the installed Spark, and with docs/replication.md.
"""

from __future__ import annotations

from collections.abc import Mapping

GROUPS: Mapping[str, str] = {
    "text": """
        ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains elt endswith
        find_in_set ilike initcap instr is_valid_utf8 lcase left len length levenshtein like locate lower
        lpad ltrim luhn_check make_valid_utf8 mask octet_length overlay parse_url position quote repeat replace right
        rpad rtrim sentences soundex space split_part startswith str_to_map substr substring substring_index translate
        trim try_parse_url try_url_decode try_validate_utf8 ucase unbase64 upper url_decode url_encode validate_utf8
    """,
    "patterns": """
        regexp regexp_count regexp_extract regexp_instr regexp_like regexp_replace regexp_substr rlike split
    """,
    "numbers": """
        abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling conv cos cosh cot csc
        degrees div e exp expm1 factorial floor getbit greatest hypot isnan least ln log log10 log1p log2 mod nanvl
        negative pi pmod positive pow power radians rint round sec shiftleft shiftright shiftrightunsigned sign signum
        sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract width_bucket
    """,
    "times": """
        add_months curdate current_date current_timestamp date_add date_diff date_format
        date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek
        dayofyear extract from_unixtime from_utc_timestamp hour last_day localtimestamp make_date make_dt_interval
        make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month
        monthname months_between next_day now quarter second timestamp_micros timestamp_millis
        timestamp_seconds timestampadd timestampdiff to_date to_timestamp to_timestamp_ltz to_timestamp_ntz
        to_unix_timestamp to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz
        try_make_timestamp_ntz try_to_date try_to_timestamp unix_date unix_micros unix_millis unix_seconds
        unix_timestamp weekday weekofyear year
    """,
    "conditions": """
        and between case coalesce equal_null if ifnull in isnotnull isnull not nullif nullifzero nvl nvl2 or when
        zeroifnull
    """,
    "casts": """
        bigint binary boolean cast date decimal decode double encode float hex int smallint string timestamp
        tinyint to_binary to_char to_number to_varchar try_cast try_to_binary try_to_number typeof unhex
    """,
    "arrays, maps and structs": """
        aggregate array array_append array_compact array_contains array_distinct array_except array_insert
        array_intersect array_join array_max array_min array_position array_prepend array_remove array_size array_sort
        array_union arrays_overlap arrays_zip cardinality element_at exists filter flatten forall get map map_concat
        map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values named_struct reduce
        reverse size slice sort_array struct try_element_at
    """,
    "JSON and CSV": """
        from_csv from_json get_json_object is_valid_variant is_variant_null json_array_length json_object_keys
        parse_json schema_of_csv schema_of_json schema_of_variant to_csv to_json to_variant_object try_parse_json
        try_variant_get variant_get
    """,
    "hashes": "crc32 hash md5 sha sha1 sha2 xxhash64",
}

FUNCTIONS = frozenset(name for names in GROUPS.values() for name in names.split())

SIZES: Mapping[str, int] = {"array_insert": 1, "lpad": 1, "repeat": 1, "rpad": 1, "space": 0}
"""The argument that decides how large the result is: it must be a number, and not a large one."""

SCALES: Mapping[str, int] = {"bround": 1, "ceil": 1, "ceiling": 1, "floor": 1, "round": 1}
"""The same, where the argument may be left out: the digits to round to. Spark computes with as many."""

STARTS: Mapping[str, int] = {"aggregate": 1, "reduce": 1}
"""The argument that must be a number, or a cast of one: what a lambda adds to stays as small as that."""

INSERTED: Mapping[str, tuple[int, ...]] = {
    "array_join": (1, 2),
    "concat_ws": (0,),
    "regexp_replace": (2,),
    "replace": (2,),
}
"""Arguments that must be literal texts, since the result may have them many times."""

PATTERNS: Mapping[str, tuple[int, ...]] = {
    "date_format": (1,),
    "from_unixtime": (1,),
    "ilike": (1,),
    "like": (1,),
    "parse_url": (2,),
    "regexp": (1,),
    "regexp_count": (1,),
    "regexp_extract": (1,),
    "regexp_instr": (1,),
    "regexp_like": (1,),
    "regexp_replace": (1,),
    "regexp_substr": (1,),
    "rlike": (1,),
    "split": (1,),
    "str_to_map": (1, 2),
    "to_char": (1,),
    "to_date": (1,),
    "to_timestamp": (1,),
    "to_timestamp_ltz": (1,),
    "to_timestamp_ntz": (1,),
    "to_unix_timestamp": (1,),
    "to_varchar": (1,),
    "try_parse_url": (2,),
    "try_to_date": (1,),
    "try_to_timestamp": (1,),
    "unix_timestamp": (1,),
}
"""Arguments that must be literal texts, since Spark compiles each that it meets, and keeps formats of times."""

SAMPLES: Mapping[str, tuple[int, ...]] = {"schema_of_csv": (0,), "schema_of_json": (0,)}
"""Arguments that must be literal texts, since Spark reads them when it analyses."""

TYPES: Mapping[str, int] = {"from_csv": 1, "from_json": 1, "try_variant_get": 2, "variant_get": 2}
"""The argument that names types. In JSON, which Spark reads there too, a type may be a class to load."""

OPTIONS: Mapping[str, int] = {
    "from_csv": 2,
    "from_json": 2,
    "schema_of_csv": 1,
    "schema_of_json": 1,
    "to_csv": 1,
    "to_json": 1,
}
"""The argument with options."""

_OPTION_NAMES = """
    allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros allowSingleQuotes
    allowUnquotedControlChars allowUnquotedFieldNames dateFormat delimiter emptyValue escape ignoreLeadingWhiteSpace
    ignoreNullFields ignoreTrailingWhiteSpace locale mode nanValue negativeInf nullValue positiveInf prefersDecimal
    primitivesAsString quote sep sortKeys timestampFormat timestampNTZFormat timeZone
"""
OPTION_NAMES = frozenset(_OPTION_NAMES.split())
"""Options about how values are written. Others decide about memory (maxColumns, inputBufferSize) or load classes
(compression)."""

GROWTH: Mapping[str, int] = {
    "base64": 2,
    "decode": 3,
    "encode": 4,
    "from_csv": 3,
    "hex": 2,
    "quote": 2,
    "regexp_count": 10,
    "sentences": 10,
    "split": 10,
    "to_char": 2,
    "to_csv": 3,
    "to_json": 6,
    "to_varchar": 2,
    "url_encode": 3,
}
"""How many times as large as the arguments the result may be, where that is more when functions are nested: a test
measures it. Each element of a list is an object of the JVM, whatever its size; `regexp_count` makes a list of all
matches."""
