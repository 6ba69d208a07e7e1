"""GR4: PIP-370's table, row by row, under both settings of each of the two switches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.replication.model import Mismatch, State
from magnetar.replication.partitions import Decision, decide_remote

BOTH_MODES = pytest.mark.parametrize("mismatch", Mismatch)
BOTH_FLAGS = pytest.mark.parametrize("creates", [True, False])


def copied(decision: Decision, partitions: int) -> list[int]:
    """The copied partitions; [-1] for a topic without partitions."""
    return [partition for partition in (range(partitions) if partitions else [-1]) if decision.copies(partition)]


def makes_nothing(decision: Decision) -> bool:
    return decision.creates is None and decision.grows_to is None


# -- rows 1 and 7: no topic there


@BOTH_MODES
@pytest.mark.parametrize("local", [0, 1, 2])
def test_gr4_a_missing_remote_topic_is_created_with_the_same_partitions(local: int, mismatch: Mismatch) -> None:
    decision = decide_remote(local, None, creates=True, mismatch=mismatch)
    assert (decision.creates, decision.grows_to) == (local, None)
    assert (decision.state, decision.reason) == (State.RUNNING, "")
    assert copied(decision, local) == (list(range(local)) or [-1])


@BOTH_MODES
@pytest.mark.parametrize("local", [0, 1, 2])
def test_gr3_a_missing_remote_topic_that_may_not_be_created(local: int, mismatch: Mismatch) -> None:
    decision = decide_remote(local, None, creates=False, mismatch=mismatch)
    assert makes_nothing(decision)
    assert decision.state is State.WAITING
    assert "does not exist" in decision.reason
    assert "createTopicToRemoteClusterForReplication is false" in decision.reason
    assert copied(decision, local) == []


# -- rows 3 and 6: the same shape


@BOTH_MODES
@BOTH_FLAGS
@pytest.mark.parametrize("partitions", [0, 1, 2, 1000])
def test_gr4_equal_partitions_are_copied_and_nothing_is_created(
    partitions: int, mismatch: Mismatch, creates: bool
) -> None:
    decision = decide_remote(partitions, partitions, creates=creates, mismatch=mismatch)
    assert makes_nothing(decision)
    assert (decision.state, decision.reason) == (State.RUNNING, "")
    assert copied(decision, partitions) == (list(range(partitions)) or [-1])


# -- rows 2, 4, 5 and 8: in dispute


@BOTH_FLAGS
def test_gr4_2_against_1_copies_the_first_partition_only(creates: bool) -> None:
    decision = decide_remote(2, 1, creates=creates, mismatch=Mismatch.PIP370)
    assert makes_nothing(decision)
    assert decision.state is State.MISMATCH
    assert decision.reason == (
        "the topic has 2 partitions here and has 1 partition in the remote cluster: partition 1 cannot be copied"
    )
    assert copied(decision, 2) == [0]


@BOTH_FLAGS
def test_gr4_the_reason_names_the_range_of_excluded_partitions(creates: bool) -> None:
    decision = decide_remote(6, 2, creates=creates, mismatch=Mismatch.PIP370)
    assert decision.reason.endswith("partitions 2 to 5 cannot be copied")
    assert copied(decision, 6) == [0, 1]


@BOTH_FLAGS
@pytest.mark.parametrize("remote", [3, 4, 100])
def test_gr4_2_against_more_copies_to_the_same_index(remote: int, creates: bool) -> None:
    decision = decide_remote(2, remote, creates=creates, mismatch=Mismatch.PIP370)
    assert makes_nothing(decision)
    assert decision.state is State.RUNNING
    assert f"{remote} partitions in the remote cluster: each is copied to the one with its index" in decision.reason
    assert copied(decision, 2) == [0, 1]


@BOTH_FLAGS
@pytest.mark.parametrize("remote", [1, 3])
def test_gr4_stop_copies_nothing_of_another_number_of_partitions(remote: int, creates: bool) -> None:
    decision = decide_remote(2, remote, creates=creates, mismatch=Mismatch.STOP)
    assert makes_nothing(decision)
    assert decision.state is State.MISMATCH
    assert "partitionMismatch=stop" in decision.reason
    assert copied(decision, 2) == []


@BOTH_MODES
@BOTH_FLAGS
@pytest.mark.parametrize(("local", "remote"), [(2, 0), (1, 0), (0, 1), (0, 2)])
def test_gr4_partitioned_and_unpartitioned_do_not_match(
    local: int, remote: int, mismatch: Mismatch, creates: bool
) -> None:
    decision = decide_remote(local, remote, creates=creates, mismatch=mismatch)
    assert makes_nothing(decision)
    assert decision.state is State.MISMATCH
    assert "is not partitioned" in decision.reason
    assert decision.reason.endswith("nothing is copied")
    assert copied(decision, local) == []


# -- a topic that was given more partitions


@BOTH_MODES
def test_gr2_a_remote_with_the_former_number_of_partitions_follows(mismatch: Mismatch) -> None:
    decision = decide_remote(5, 3, creates=True, mismatch=mismatch, grown_from=3)
    assert (decision.creates, decision.grows_to) == (None, 5)
    assert (decision.state, decision.reason) == (State.RUNNING, "")
    assert copied(decision, 5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mismatch", Mismatch)
def test_gr3_added_partitions_leave_the_remote_alone_where_topics_are_not_created(mismatch: Mismatch) -> None:
    decision = decide_remote(5, 3, creates=False, mismatch=mismatch, grown_from=3)
    assert makes_nothing(decision)
    assert decision.state is State.MISMATCH
    assert copied(decision, 5) == ([0, 1, 2] if mismatch is Mismatch.PIP370 else [])


@BOTH_MODES
@pytest.mark.parametrize("remote", [3, 5])
def test_gr2_a_topic_that_grew_twice_is_followed_from_either_number(remote: int, mismatch: Mismatch) -> None:
    decision = decide_remote(7, remote, creates=True, mismatch=mismatch, grown_from=3)
    assert (decision.grows_to, decision.state, decision.copied) == (7, State.RUNNING, 7)


@BOTH_MODES
@pytest.mark.parametrize("remote", [0, 1, 2, 6])
def test_gr4_a_remote_that_differed_before_does_not_follow(remote: int, mismatch: Mismatch) -> None:
    assert makes_nothing(decide_remote(5, remote, creates=True, mismatch=mismatch, grown_from=3))


PARTITIONS = st.integers(0, 6)


@given(PARTITIONS, st.none() | PARTITIONS, st.booleans(), st.sampled_from(Mismatch), PARTITIONS)
def test_gr4_invariants_of_every_row(
    local: int, remote: int | None, creates: bool, mismatch: Mismatch, grown_from: int
) -> None:
    decision = decide_remote(local, remote, creates=creates, mismatch=mismatch, grown_from=grown_from)
    after = decision.creates if decision.creates is not None else decision.grows_to
    after = remote if after is None else after
    if not creates:
        assert makes_nothing(decision), "GR3: false makes nothing"
    if decision.creates is not None:
        assert remote is None, "what exists is never created anew"
    if decision.grows_to is not None:
        assert remote is not None
        assert 0 < remote < decision.grows_to
    if decision.copied:
        assert after is not None
        assert bool(after) == bool(local), "never between a topic with partitions and one without"
        assert decision.copied <= max(after, 1), "every copied partition has its twin"
    is_whole = decision.copied == max(local, 1)
    assert decision.state.is_copying == is_whole
    assert bool(decision.reason) == (after != local), "whatever differs has a reason, and nothing else has"
