"""Which leaf reads which source, where progress names none."""

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.window import SourceRate
from penstock.observe.sources.tracking import OfferedToSource, match_sources, rates_of_leaves


@pytest.mark.parametrize("order", list(permutations(["a", "b", "c"])))
def test_counts_decide_in_whatever_order_leaves_come(order):
    read = {"a": 5000.0, "b": 50.0, "c": 700.0}
    matched = match_sources({leaf: read[leaf] for leaf in order}, [700, 5000, 50])
    assert matched == {0: "c", 1: "a", 2: "b"}


def test_equal_counts_are_told_apart_by_name_so_that_a_batch_changes_nothing():
    assert match_sources({"scan #2": 10, "scan": 10}, [10, 10]) == {0: "scan", 1: "scan #2"}


def test_sources_of_one_stage_share_it():
    assert match_sources({"union": 30}, [10, 20]) == {0: "union", 1: "union"}


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True), st.randoms())
def test_leaves_that_read_what_their_sources_reported_are_all_found(counts, random):
    leaves = {f"leaf {count}": float(count) for count in counts}
    shuffled = random.sample(counts, len(counts))
    assert match_sources(leaves, shuffled) == {n: f"leaf {count}" for n, count in enumerate(shuffled)}


def test_each_side_of_a_join_gets_its_own_source():
    sources = [OfferedToSource(4000, 1000, 300), OfferedToSource(50, 12.5, 0)]
    assert rates_of_leaves({"slow": 50, "fast": 4000}, sources, observed_per_second=810) == {
        "slow": SourceRate(12.5, 10.0, 0),
        "fast": SourceRate(1000, 800.0, 300),
    }


def test_sources_of_one_leaf_add_up():
    sources = [OfferedToSource(100, 10, 5), OfferedToSource(300, 30, 7)]
    assert rates_of_leaves({"union": 400}, sources, 44) == {"union": SourceRate(40, 44, 12)}


def test_both_sides_of_a_self_join_are_offered_the_one_source():
    """Spark reports one source, and counts its 400 records twice."""
    rates = rates_of_leaves({"left": 400, "right": 400}, [OfferedToSource(800, 100, 60)], 200)
    assert rates == dict.fromkeys(["left", "right"], SourceRate(100, 100, 60))


def test_what_only_reading_tells_is_not_counted_twice():
    source = OfferedToSource(800, 200, 0, told_by_reading=True)
    rates = rates_of_leaves({"left": 400, "right": 400}, [source], 200)
    assert rates == dict.fromkeys(["left", "right"], SourceRate(100, 100, 0))


STREAM, TABLE = "Scan json + Filter", "Scan parquet + Filter"


def test_a_table_that_is_joined_is_read_whole_in_every_batch_and_offered_by_nobody():
    """1,713 records/s were told of a stream with 590, by a small batch beside a table of 300 rows."""
    rates = rates_of_leaves({STREAM: 157, TABLE: 300}, [OfferedToSource(157, 590, 40)], 10)
    assert rates[STREAM] == SourceRate(590, 10, 40)
    assert rates[TABLE] == SourceRate(0.0, 0.0, 0.0, rows_per_batch=300.0)


@pytest.mark.parametrize("other", [STREAM + " + Project", "InMemoryTableScan + Project"])
def test_one_more_action_on_the_same_batch_follows_the_stream(other):
    rates = rates_of_leaves({STREAM: 100, other: 1000}, [OfferedToSource(100, 20, 40)], 10)
    assert rates[STREAM] == SourceRate(20, 10, 40)
    assert rates[other] == SourceRate(200, 100, 400)


def test_a_side_of_another_format_that_spark_counts_follows_too():
    rates = rates_of_leaves({STREAM: 400, TABLE: 400}, [OfferedToSource(800, 100, 60)], 200)
    assert rates[TABLE] == SourceRate(100, 100, 60)


def test_an_unknown_offer_stays_unknown():
    sources = [OfferedToSource(10, math.nan, 0), OfferedToSource(20, 5, 0)]
    rates = rates_of_leaves({"a": 10, "b": 20}, sources, 3)
    assert math.isnan(rates["a"].offered_per_second)
    assert rates["b"].offered_per_second == 5


def test_a_batch_without_records_divides_by_nothing():
    rates = rates_of_leaves({"a": 0, "b": 0, "c": 0}, [OfferedToSource(0, 7, 0, told_by_reading=True)], 3)
    assert rates == dict.fromkeys("abc", SourceRate(0, 0, 0))
