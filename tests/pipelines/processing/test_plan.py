"""Plans: names of topics, delays, and everything that is refused before a broker is asked."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.pipelines import process
from magnetar.pipelines.processing.call.function import InvalidProcess, kind_of, load
from magnetar.pipelines.processing.plan import plan
from magnetar.pipelines.processing.run import check_runnable

ORDERS = "persistent://public/default/orders"


def test_sp2_topics_have_the_names_of_the_clients() -> None:
    found = plan("orders", "billing", into="invoices", retry=["250ms", "10s", "1m", 600])
    assert (found.topic, found.into) == (ORDERS, "persistent://public/default/invoices")
    assert found.retry_topic == f"{ORDERS}-billing-RETRY"
    assert found.dead_letter_topic == f"{ORDERS}-billing-DLQ"
    assert found.retry_ms == (250, 10_000, 60_000, 600_000)


def test_sp2_exceptions_are_routed_by_the_most_specific_class() -> None:
    found = plan("orders", "s", dead_letter_topics={LookupError: "lookups", "KeyError": "keys"})
    prefix = "persistent://public/default/"
    assert found.dead_letter_topic_of(("KeyError", "LookupError", "Exception")) == prefix + "keys"
    assert found.dead_letter_topic_of(("IndexError", "LookupError", "Exception")) == prefix + "lookups"
    assert found.dead_letter_topic_of(("ValueError", "Exception")) == prefix + "orders-s-DLQ"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"subscription": ""}, "subscription is empty"),
        ({"topic": "a/b"}, "topic: "),
        ({"topic": "orders-partition-1"}, "is a partition: name the whole topic"),
        ({"topic": "non-persistent://public/default/t"}, "is not persistent"),
        ({"into": "orders"}, "is read by the same process, which would never end"),
        ({"into": "orders-s-RETRY"}, "is read by the same process"),
        ({"retry_topic": "orders"}, f"retry_topic is {ORDERS} itself"),
        ({"dead_letter_topic": "orders"}, "dead_letter_topic persistent://public/default/orders is read by the same"),
        ({"dead_letter_topics": {ValueError: "orders"}}, "for ValueError is read by the same process"),
        ({"retry": "10s"}, "retry '10s' is a text: give a list of delays"),
        ({"retry": ["soon"]}, "retry: 'soon' is not a duration such as 250ms, 10s, 1m, 2h or 1d"),
        ({"retry": ["0s"]}, "retry: 0s is not between 1ms and 31622400s"),
        ({"retry": [float("inf")]}, "retry: inf is not between"),
        ({"retry": [None]}, "retry: None is not a duration"),
        ({"retry": ["1s"] * 101}, "retry has 101 delays, the limit is 100"),
        ({"timeout": "-1s"}, "timeout: '-1s' is not a duration"),
        ({"concurrency": 0}, "concurrency 0 is not between 1 and 1000"),
        ({"batch_rows": 0}, "batch_rows 0 is not between 1 and 1000000"),
        ({"no_retry": [int]}, "no_retry: <class 'int'> is not a class of exceptions"),
        ({"kind": "rows"}, "kind 'rows' is not one of row, arrow, pandas, async"),
    ],
)
def test_sp2_bad_arguments_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidProcess) as caught:
        process(**{"topic": "orders", "subscription": "s", **arguments})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders", "function 'orders' is not of the form module:name"),
        ("no_such_module:charge", "module no_such_module cannot be imported: ModuleNotFoundError"),
        ("json:charge", "function json:charge: json has no charge"),
        ("json:__name__", "function json:__name__ is of type str, which cannot be called"),
    ],
)
def test_sp2_a_function_that_cannot_be_used_is_named(name: str, text: str) -> None:
    with pytest.raises(InvalidProcess) as caught:
        load(name)
    assert text in str(caught.value)


def test_sp2_coroutine_functions_are_async() -> None:
    async def coroutine() -> None: ...

    def plain() -> None: ...

    assert (kind_of(coroutine, None), kind_of(plain, None), kind_of(plain, "arrow")) == ("async", "row", "arrow")
    for function, kind in ((coroutine, "row"), (plain, "async")):
        with pytest.raises(InvalidProcess, match=r"is (not )?for functions"):
            kind_of(function, kind)


def test_sp2_a_process_has_one_function_or_transform() -> None:
    nothing = process("orders", subscription="s", into="out")
    with pytest.raises(InvalidProcess, match="either a function, or SQL or a transform"):
        check_runnable(nothing.plan, None)
    with pytest.raises(InvalidProcess, match="into is missing"):
        check_runnable(process("orders", subscription="s").plan, "select 1")
    with pytest.raises(InvalidProcess, match="cannot be called"):
        nothing(5)  # type: ignore[arg-type]
