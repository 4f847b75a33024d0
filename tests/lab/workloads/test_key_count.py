"""Keys and preload of the key-count, and where records of a skewed state go, without Spark running."""

from collections import Counter

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.errors import BadInput
from penstock_lab.workloads.key_count import KeyCount, SkewedState
from penstock_lab.workloads.source import LoadSource


def reader(workload):
    return LoadSource(workload.list_options()).streamReader(None)


def test_a_preload_offers_every_key_once_before_the_profile_begins():
    workload = KeyCount("constant:100", keys=2500, preload_per_batch=1000)
    subject = reader(workload)
    offset, ends = subject.initialOffset(), []
    while offset["records"] < 2500:
        offset = subject.latestOffset(offset, ReadAllAvailable())
        ends.append(offset)
    assert [end["records"] for end in ends] == [1000, 2000, 2500]
    assert {end["start_ms"] for end in ends} == {0}
    assert workload.count_keys(2500) == dict.fromkeys(range(2500), 1)


def test_the_clock_of_the_profile_starts_after_the_preload():
    subject = reader(KeyCount("constant:1", keys=10))
    loaded = {"records": 10, "start_ms": 0}
    begun = subject.latestOffset(loaded, ReadAllAvailable())
    assert begun["records"] == 10
    assert begun["start_ms"] > 0
    assert subject.latestOffset(begun, ReadAllAvailable())["start_ms"] == begun["start_ms"]
    assert subject.reportLatestOffset()["records"] >= 10


def test_the_preload_is_reported_as_offered_while_it_lasts():
    subject = reader(KeyCount("constant:1", keys=10, preload_per_batch=4))
    subject.latestOffset({"records": 4, "start_ms": 0}, ReadAllAvailable())
    assert subject.reportLatestOffset()["records"] == 10


def test_most_records_count_without_the_preload():
    subject = reader(KeyCount("constant:100", keys=10, start=1000, max_records=5))
    begun = subject.latestOffset({"records": 10, "start_ms": 0}, ReadAllAvailable())
    assert begun == {"records": 15, "start_ms": 1_000_000}


def test_keys_are_spread_over_all_of_them_and_hot_ones_get_their_share():
    even = KeyCount("constant:1", keys=50, preload=False).count_keys(100_000)
    assert set(even) == set(range(50))
    assert max(even.values()) < 1.1 * min(even.values())
    skewed = KeyCount("constant:1", keys=50, preload=False, hot_share=0.5).count_keys(100_000)
    assert skewed[0] == pytest.approx(51_000, rel=0.02)


@pytest.mark.parametrize("changes", [{"keys": 0}, {"hot_share": 1.5}, {"hot_keys": 11}, {"bins": 0}])
def test_impossible_settings_are_refused(changes):
    with pytest.raises(BadInput):
        KeyCount(**{"profile": "constant:1", "keys": 10, **changes})


def test_an_unknown_content_is_refused():
    with pytest.raises(BadInput, match="content"):
        LoadSource({"content": "poems"}).schema()


def skewed(**changes):
    return SkewedState(**{"profile": "constant:100", "seconds_per_record": 0.0, "share": 0.5, **changes})


def test_keys_are_alike_until_the_first_one_becomes_hot():
    load = skewed(even_records=64_000)
    before = Counter(load.find_place(number) for number in range(64_000))
    after = Counter(load.find_place(number) for number in range(64_000, 128_000))
    assert set(before.values()) == {1000}
    assert after[0] / 64_000 == pytest.approx(0.5 + 0.5 / 64, rel=0.02)
    assert max(count for place, count in after.items() if place) / min(after.values()) < 1.1


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_hot_bin_gets_its_share_beside_its_part_of_the_rest(share):
    load = skewed(share=share)
    bins = Counter(load.find_place(number) % load.bins for number in range(50_000))
    assert bins[0] / 50_000 == pytest.approx(load.hot_bin_share, rel=0.02)


@pytest.mark.parametrize("changes", [{"share": 1.5}, {"share": -0.1}, {"bins": 0}, {"keys_a_bin": 0}])
def test_what_cannot_be_is_refused(changes):
    with pytest.raises(BadInput):
        skewed(**changes)
