"""What is fused: neighbours with a topic of their own that costs too much; and how each batch runs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.pipeline import Pipeline, files, kafka
from penstock.pipeline.batches import BatchDone, InstanceWork
from penstock.pipeline.fusing import (
    PARTED_SECONDS,
    BatchModes,
    FusePlan,
    Hop,
    choose_groups,
    find_chains,
    measure_hop,
)
from penstock.pipeline.spark_fusing import parse_marks

SHARE = 0.2
CHAIN = ("a", "b", "c", "d")


def linear(*, more=None, **of_b):
    """raw → a → one → b → two → c → three."""
    pipeline = Pipeline("line", topics=files("topics"))
    pipeline.topic("raw", schema="number bigint")
    for (reads, name), writes in zip(
        [("raw", "a"), ("one", "b"), ("two", "c")], ("one", "two", "three"), strict=True
    ):
        given_options = {"schema": "number bigint", **(of_b if name == "b" else {})}
        pipeline.add(len, name=name, reads=reads, writes=writes, **given_options)
    if more is not None:
        more(pipeline)
    return pipeline


def another_reader(pipeline):
    pipeline.add(len, name="tap", reads="one")


def another_writer(pipeline):
    pipeline.topic("else", schema="number bigint")
    pipeline.add(len, name="other", reads="else", writes="one", schema="number bigint")


def a_kept_topic(pipeline):
    pipeline.topic("one", schema="number bigint")


def a_declared_topic_that_is_not_kept(pipeline):
    pipeline.topic("one", schema="number bigint", kept=False)


def a_topic_elsewhere(pipeline):
    pipeline.topic("one", schema="number bigint", at=kafka("broker:9092"), kept=False)


@pytest.mark.parametrize(
    ("pipeline", "chains"),
    [
        (linear(), (("a", "b", "c"),)),
        (linear(takes="arrow"), (("a", "b", "c"),)),
        (linear(more=a_declared_topic_that_is_not_kept), (("a", "b", "c"),)),
        (linear(fuse=False), ()),
        (linear(takes="dataframe"), ()),
        (linear(key="number", state="seen bigint"), ()),
        (linear(key="number"), (("b", "c"),)),
        (linear(more=another_reader), (("b", "c"),)),
        (linear(more=another_writer), (("b", "c"),)),
        (linear(more=a_kept_topic), (("b", "c"),)),
        (linear(more=a_topic_elsewhere), (("b", "c"),)),
    ],
    ids=lambda one: "" if isinstance(one, tuple) else None,
)
def test_only_linear_neighbours_of_one_form_with_a_topic_of_their_own_may_be_fused(pipeline, chains):
    assert find_chains(pipeline) == chains


def test_a_function_of_two_topics_is_no_linear_neighbour():
    pipeline = linear()
    pipeline.topic("side", schema="number bigint")
    pipeline.add(len, name="join", reads=("three", "side"))
    assert find_chains(pipeline) == (("a", "b", "c"),)


def test_switches_are_yes_or_no():
    with pytest.raises(BadInput, match="fuse is 'auto', neither true nor false"):
        linear(fuse="auto")
    with pytest.raises(BadInput, match="kept is 1"):
        Pipeline("line").topic("one", kept=1)


seconds = st.floats(0, 100)
hops = st.dictionaries(st.sampled_from(list(pairwise(CHAIN))), st.builds(Hop, seconds, seconds))
pairs = st.sets(st.sampled_from(list(pairwise(CHAIN))))


def joined(groups):
    return {pair for group in groups for pair in pairwise(group)}


@given(hops, pairs, pairs, st.sampled_from(["auto", "never", "always"]))
def test_groups_are_runs_of_a_chain_that_share_no_function(found, fused, apart, mode):
    groups = choose_groups([CHAIN], found, fused, mode, SHARE, apart)
    names = [name for group in groups for name in group]
    assert len(names) == len(set(names)) and all(len(group) > 1 for group in groups)
    assert joined(groups) <= set(pairwise(CHAIN)) - apart
    assert names == [name for name in CHAIN if name in names]


@given(hops, pairs)
def test_never_fuses_nothing_and_always_everything(found, fused):
    assert choose_groups([CHAIN], found, fused, "never", SHARE) == ()
    assert choose_groups([CHAIN], found, fused, "always", SHARE) == (CHAIN,)


@given(hops, pairs, st.sampled_from(list(pairwise(CHAIN))), seconds)
def test_a_dearer_hop_never_parts_its_functions_nor_any_other(found, fused, pair, more):
    before = joined(choose_groups([CHAIN], found, fused, "auto", SHARE))
    if pair in found:
        found = {**found, pair: Hop(found[pair].cost_seconds + more, found[pair].useful_seconds)}
    assert before <= joined(choose_groups([CHAIN], found, fused, "auto", SHARE))


@given(hops, pairs)
def test_what_the_rule_chose_it_chooses_again_while_nothing_changes(found, fused):
    once = choose_groups([CHAIN], found, fused, "auto", SHARE)
    assert choose_groups([CHAIN], found, joined(once), "auto", SHARE) == once


def test_a_hop_is_dear_above_a_share_of_the_useful_time_and_cheap_again_at_half_of_it():
    # 0.2 of 2 s of useful time are 0.4 s, and half of that 0.2 s
    def joins(cost, fused=()):
        return (
            joined(choose_groups([("a", "b")], {("a", "b"): Hop(cost, 2.0)}, fused, "auto", SHARE)) != set()
        )

    assert [joins(cost) for cost in (0.0, 0.4, 0.41)] == [False, False, True]
    assert [joins(cost, {("a", "b")}) for cost in (0.2, 0.21)] == [False, True]


def batch(function, useful, response=0.0, straight=False, number=0):
    work = (InstanceWork(0, 10, 10, 0, useful), InstanceWork(1, 10, 10, 0, useful))
    return BatchDone(function, number, 0.0, 10.0, 2, work, 0.0, 10.0 - response, straight=straight)


def test_a_hop_costs_what_the_response_has_beside_useful_time():
    first, second = [batch("a", 0.5)] * 3, [batch("b", 1.0, response=1.75)] * 3
    assert measure_hop(first, second, None) == Hop(pytest.approx(0.75), pytest.approx(1.5))


def test_nothing_is_known_of_a_hop_before_three_batches_of_either_function():
    assert measure_hop([batch("a", 0.5)] * 2, [batch("b", 1.0)] * 9, None) is None
    assert measure_hop([batch("a", 0.5)] * 9, [batch("b", 1.0)] * 2, None) is None


def test_of_fused_functions_the_hop_is_known_from_before_and_the_useful_time_from_now():
    second = [batch("b", 1.5, response=9.0, straight=True)] * 3
    assert measure_hop([batch("a", 0.5)] * 3, second, 0.25) == Hop(0.25, pytest.approx(2.0))
    assert measure_hop([batch("a", 0.5)] * 3, second, None) is None


class Seen:
    def __init__(self, **batches):
        self.batches = batches

    def __call__(self, name):
        return self.batches.get(name, ())


DEAR = Seen(a=[batch("a", 0.5)] * 3, b=[batch("b", 0.5, response=1.5)] * 3)
CHEAP = Seen(a=[batch("a", 5)] * 3, b=[batch("b", 5, response=5.1)] * 3)


def test_a_plan_fuses_what_batches_show_to_be_dear_and_says_why():
    plan = FusePlan([("a", "b")], "auto", SHARE)
    assert plan.group_of("a") == ("a",) and plan.review(0.0, CHEAP) == () and plan.groups == ()
    assert plan.review(1.0, DEAR) == (
        "a and b run as one query: the topic between them costs 1 s beside 1 s of work",
    )
    assert plan.group_of("b") == ("a", "b") and plan.review(2.0, DEAR) == ()
    (told,) = plan.review(3.0, CHEAP)
    assert told.startswith("a and b run as two queries again") and plan.groups == ()


def test_nothing_joins_a_function_that_is_behind():
    plan = FusePlan([("a", "b")], "auto", SHARE)
    assert plan.review(0.0, DEAR, {"b"}) == () and plan.groups == ()
    plan.review(1.0, DEAR)
    plan.review(2.0, DEAR, {"b"})
    assert plan.groups == (("a", "b"),)


def test_a_query_may_have_to_serve_all_functions_behind_its_own():
    plan = FusePlan([("a", "b", "c")], "never", SHARE)
    assert [plan.list_behind(name) for name in "bcd"] == [("b", "c"), ("c",), ("d",)]


def test_only_the_first_of_a_group_serves_the_others_and_what_waits_for_these_they_serve_alone():
    plan = FusePlan([("a", "b", "c")], "always", SHARE)
    assert [plan.choose_batch(name) for name in "abcd"] == [("a", "b", "c"), ("b",), ("c",), ("d",)]


def test_functions_that_failed_together_stay_apart_for_a_while():
    plan = FusePlan([("a", "b")], "always", SHARE)
    plan.part(("a", "b"), now=100.0)
    assert plan.review(100.0 + PARTED_SECONDS - 1, DEAR) == () and plan.groups == ()
    plan.review(100.0 + PARTED_SECONDS + 1, DEAR)
    assert plan.groups == (("a", "b"),)


def test_a_query_is_passed_by_only_after_a_batch_of_its_group_has_ended():
    plan = FusePlan([("a", "b")], "always", SHARE)
    assert not plan.is_passed_by("b")
    plan.note_batch(("a",))
    assert not plan.is_passed_by("b")
    plan.note_batch(("a", "b"))
    assert plan.is_passed_by("b") and not plan.is_passed_by("a")
    plan.part(("a", "b"), 0.0)
    assert not plan.is_passed_by("b")


def test_groups_of_the_run_before_go_on_if_they_still_may():
    assert FusePlan([("a", "b")], "auto", SHARE, [("a", "b"), ("c",)]).groups == (("a", "b"),)
    assert FusePlan([("a", "b")], "never", SHARE, [("a", "b")]).groups == ()
    assert FusePlan([], "auto", SHARE, [("a", "b")]).groups == ()


def test_a_batch_that_is_run_again_runs_as_it_did_and_a_change_is_written_down_first():
    written = []
    modes = BatchModes("a", {3: ("a", "b")}, begun=5, write=lambda *mark: written.append(mark))
    assert modes.choose(5, ("a",)) == ("a", "b") and written == []
    assert modes.choose(6, ("a",)) == ("a",) and written == [(6, ("a",))]
    assert modes.choose(6, ("a", "b")) == ("a",)
    assert modes.choose(7, ("a",)) == ("a",) and len(written) == 1
    assert modes.choose(8, ("a", "b")) == ("a", "b") and written[1:] == [(8, ("a", "b"))]
    modes.change(8, ("a",))
    assert modes.choose(8, ("a", "b")) == ("a",) and modes.newest == ("a",)


@given(st.lists(st.tuples(st.sampled_from([("a",), ("a", "b")]), st.booleans()), max_size=12))
def test_whatever_crashes_come_between_every_batch_runs_in_one_way(steps):
    """Each step is what is wanted, and whether the driver dies before the batch is committed."""
    marks, ran, batch_id, begun = {}, {}, 0, -1
    for wanted, dies in steps:
        modes = BatchModes("a", marks, begun, marks.__setitem__)
        found = modes.choose(batch_id, wanted)
        assert ran.setdefault(batch_id, found) == found
        begun = batch_id
        batch_id += not dies


def test_of_a_batch_that_was_tried_in_two_ways_the_last_counts():
    names = ["000000003+a+b", "000000008+a", "000000008+a+b", "000000009+a+b", ".hidden", "7"]
    assert parse_marks(names) == {3: ("a", "b"), 8: ("a",), 9: ("a", "b")}
    assert parse_marks(reversed(names)) == parse_marks(names)
