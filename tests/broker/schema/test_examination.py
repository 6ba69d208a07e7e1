"""Examinations: which are large, and that what was found ahead counts only while the versions are the same."""

from __future__ import annotations

import pytest

from magnetar.bounds import SCHEMA_EXAMINATIONS, SCHEMA_IN_TURN
from magnetar.broker.schema import definition
from magnetar.broker.schema.admission import examination_ahead
from magnetar.broker.schema.examination import Examination
from magnetar.errors import IncompatibleSchema, InvalidSchema, ServiceNotReady
from magnetar.names import TopicName
from magnetar.schema.types import Schema, SchemaType
from tests.broker.world import World

from .registered import AUTO, ID, ONE, STRING, THREE, TWO, avro, put

NAME = TopicName.parse("t")
LARGE = avro(*(f"field{number}" for number in range(200)), default=0)
LARGER = avro(*(f"field{number}" for number in range(201)), default=0)


def test_bound_schema_in_turn() -> None:
    assert LARGE.size > SCHEMA_IN_TURN.limit > ONE.size + 2 * TWO.size
    assert Examination(LARGE, []).is_large
    assert not Examination(STRING, []).is_large
    world = World()
    put(world, ONE)
    assert not world.broker.schemas.examination(ID, TWO).is_large
    put(world, LARGE)
    assert world.broker.schemas.examination(ID, TWO).is_large
    beyond = Schema(SchemaType.AVRO, b"x" * (definition.SCHEMA_SIZE_MAX + 1))
    assert not Examination(beyond, []).is_large  # refused without a look at it


def test_only_what_needs_a_comparison_is_examined_ahead() -> None:
    world = World()
    broker = world.broker
    assert examination_ahead(broker, NAME, LARGE) is not None
    assert examination_ahead(broker, NAME, LARGE, reads=True) is not None
    put(world, LARGE)
    assert examination_ahead(broker, NAME, LARGE) is None
    assert examination_ahead(broker, NAME, LARGE, reads=True) is None
    assert examination_ahead(broker, NAME, LARGER) is not None
    assert examination_ahead(broker, NAME, LARGER, reads=True) is not None
    for given in (None, STRING, AUTO):
        assert examination_ahead(broker, NAME, given) is None
    assert examination_ahead(broker, TopicName.parse("public/other/t"), LARGE) is None


def test_what_was_found_is_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    put(world, ONE)
    found = examination_ahead(world.broker, NAME, LARGE)
    assert found is not None
    examination, work = found
    work()

    def refuse(*_: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr(definition, "check", refuse)
    monkeypatch.setattr(definition, "are_same", refuse)
    with world.broker.schemas.using(examination):
        assert examination_ahead(world.broker, NAME, LARGE) is None
        assert put(world, LARGE) == [1]


def test_refusals_are_kept() -> None:
    bad = Examination(Schema(SchemaType.AVRO, b"x"), [])
    for _ in range(2):
        with pytest.raises(InvalidSchema):
            bad.find()
    world = World()
    put(world, ONE)
    other = world.broker.schemas.examination(ID, avro("b"))
    for _ in range(2):
        with pytest.raises(IncompatibleSchema, match="version 0"):
            other.find_or_check("FULL")
        with pytest.raises(IncompatibleSchema, match="version 0"):
            other.check_reader("FULL")


def test_another_version_makes_it_worthless() -> None:
    world = World()
    put(world, ONE)
    examination = world.broker.schemas.examination(ID, TWO)
    assert examination.find_or_check("FULL") is None
    put(world, TWO)
    with world.broker.schemas.using(examination):
        assert put(world, TWO) == [1]  # not a second time
        assert world.broker.schemas.examination(ID, THREE) is not examination
    assert world.broker.schemas.examination(ID, TWO) is not examination


def test_bound_schema_examinations() -> None:
    world = World()
    examination = None
    for number in range(SCHEMA_EXAMINATIONS.limit):
        with world.broker.schemas.using(examination):
            found = examination_ahead(world.broker, NAME, LARGE)
        assert found is not None
        examination, work = found
        work()
        put(world, avro(*(f"other{index}" for index in range(number + 1)), default=0))
    with (
        world.broker.schemas.using(examination),
        pytest.raises(ServiceNotReady, match=f"examined {SCHEMA_EXAMINATIONS.limit} times"),
    ):
        examination_ahead(world.broker, NAME, LARGE)
