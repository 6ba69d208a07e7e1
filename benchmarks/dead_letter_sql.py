"""SQL over dead letters: seconds for `select reason, count(*) … group by reason`, and for one over causes.

`python benchmarks/dead_letter_sql.py --letters 1000000`. Each letter is an entry of its own, as a broker or a pipeline
writes it. The start of Spark is not counted: a small query runs first.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from contestant import Contestant, Magnetar
from measurement import topic
from program import outcome_of
from scale import Log, Values

_LIMIT_S = 180.0
_RATE_MIN = 2_000  # letters a second; slower counts as a failure


class SqlFailed(Exception):
    """Letters are missing in the result, or are in it twice."""


def dead_letter_sql_rows(contestant: Contestant, letters: int, log: Log) -> Values:
    with contestant.started() as broker:
        words = ("sql", broker.service_url, broker.http_url, topic("warm-s-DLQ"), topic("sql-s-DLQ"), letters)
        limit_s = _LIMIT_S + letters / _RATE_MIN
        found = outcome_of("dead_letter_sql_job", *words, folder=contestant.folder.parent / "spark", limit_s=limit_s)
    if found["letters"] != letters:
        raise SqlFailed(f"the query counts {found['letters']:,} of {letters:,} dead letters")
    values = {"dead-letters-sql": found["reasons_s"], "dead-letters-sql-causes": found["causes_s"]}
    log(
        f"SQL over {letters:,} dead letters: {found['reasons_s']:.1f} s by reason"
        f" ({letters / found['reasons_s']:,.0f} letters/s), {found['causes_s']:.1f} s by cause, topic and hour"
    )
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sql-bench-") as folder:
        dead_letter_sql_rows(Magnetar(Path(folder, "broker")), options.letters, print)


if __name__ == "__main__":
    main()
