"""Sources that misbehave: topics made anew, other clocks, files and directories that vanish, other logs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.progress import SourceProgress
from penstock.observe.sources.file_log import LoggedFile
from penstock.observe.sources.file_watch import FileWatch, LocalPlace, LogReader
from penstock.observe.sources.files import FilesSeen, FileTrack
from penstock.observe.sources.listing import ListedFile, ListingRule, LocalListing
from penstock.observe.sources.offered import sampled_at
from penstock.observe.sources.tracking import OffsetTrack

KAFKA = "KafkaV2[Subscribe[events]]"
FILES = "FileStreamSource[file:/in]"
PERIOD = 5.0


def kafka(read, latest=None, records=0.0, start=None):
    """A report of a topic, with an offset for each partition."""

    def offset(partitions):
        return {"events": {str(number): count for number, count in enumerate(partitions)}}

    return SourceProgress(
        KAFKA, start and offset(start), offset(read), offset(read if latest is None else latest), records
    )


def follow(*reports):
    """Follow a topic, a report each five seconds; return what is offered after each."""
    track, told = OffsetTrack(), []
    for number, report in enumerate(reports):
        track.add(report, 5.0 * number)
        rate, backlog = track.measure_offered(5.0 * number - 10, 5.0 * number, PERIOD)
        told.append((rate, backlog, track.problem))
    return told


def test_a_topic_made_anew_is_told_once_and_then_counted_from_its_beginning():
    told = follow(kafka([4000]), kafka([4500]), kafka([50], start=[4500]), kafka([550]), kafka([1050]))
    assert told[1][:2] == (100, 0)
    rate, backlog, problem = told[2]
    assert math.isnan(rate) and backlog == 0
    assert "events partition 0 went back from 4,500 to 50" in problem
    assert told[3] == (100, 0, "")
    assert told[4] == (100, 0, "")


def test_a_topic_made_anew_is_told_though_a_second_report_came_before_anybody_looked():
    track = OffsetTrack()
    for number, count in enumerate([4000, 4500, 50, 550]):
        track.add(kafka([count]), 5.0 * number)
    rate, _ = track.measure_offered(5.0, 15.0, PERIOD)
    assert math.isnan(rate) and "went back from 4,500 to 50" in track.problem
    track.add(kafka([1050]), 20.0)
    assert track.measure_offered(10.0, 20.0, PERIOD) == (100, 0) and not track.problem


def test_one_partition_that_begins_anew_is_not_hidden_by_the_others():
    # the sum still rises by 500, where 1,000 came
    told = follow(kafka([1000, 1000]), kafka([1500, 1500]), kafka([500, 3000]), kafka([1000, 3500]))
    assert math.isnan(told[2][0]) and "partition 0 went back from 1,500 to 500" in told[2][2]
    assert told[3] == (200, 0, "")


def test_a_topic_that_is_gone_is_told():
    told = follow(kafka([1000]), kafka([1500]), SourceProgress(KAFKA, None, {}, {}, 0.0))
    assert math.isnan(told[2][0]) and "events partition 0 is gone" in told[2][2]


def test_a_topic_that_joins_with_its_past_is_no_burst():
    joined = {"events": {"0": 2000}, "old": {"0": 5_000_000}}
    reports = [kafka([1000]), kafka([1500]), SourceProgress(KAFKA, None, joined, joined, 500.0)]
    told = follow(*reports)
    assert math.isnan(told[2][0]) and "topic old is new" in told[2][2]


def test_partitions_that_are_added_only_add():
    assert follow(kafka([1000]), kafka([1500]), kafka([1800, 200]))[2] == (100, 0, "")


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=0, max_size=3), min_size=1, max_size=12))
def test_whatever_offsets_do_no_rate_or_backlog_is_negative(steps):
    for rate, backlog, problem in follow(*(kafka(step) for step in steps)):
        assert math.isnan(rate) or 0 <= rate < math.inf
        assert 0 <= backlog < math.inf
        assert not problem or math.isnan(rate)


@pytest.mark.parametrize("apart", [-7200.0, 7200.0, math.nan, math.inf])
def test_a_source_of_another_clock_counts_when_its_batch_began(apart):
    assert sampled_at({"at_ms": (1000.0 + apart) * 1000}, 1000.0) == 1000.0
    assert sampled_at({"at_ms": 1_001_500}, 1000.0) == 1001.5


def test_another_clock_makes_no_backlog():
    track = OffsetTrack()
    description = "org.apache.spark.sql.execution.python.streaming.PythonMicroBatchStream@1"
    for number in range(4):
        at = 5.0 * number
        offset = {"records": 500 * number, "at_ms": (at - 3600) * 1000}
        track.add(SourceProgress(description, None, offset, offset, 500.0), at)
    assert track.measure_offered(5.0, 15.0, PERIOD) == (100, 0)


def report(first, last, records):
    return SourceProgress(FILES, first, {"logOffset": last}, None, records)


def logged(entry, *moments):
    return tuple(LoggedFile(f"/in/{entry}-{n}", at, entry) for n, at in enumerate(moments))


def test_files_removed_before_they_were_read_were_never_offered():
    track = FileTrack()
    track.look(FilesSeen(10.0, logged(0, 1.0), {}))
    track.add(report(None, 0, 5.0), 0.0)
    for second in range(11, 21):
        track.look(FilesSeen(float(second), (), {f"/in/w{second}": ListedFile(second)}))
    # each was gone with the next: only the last one still waits, and Spark will read at most that one
    rate, backlog = track.measure_offered(10.0, 20.0, PERIOD)
    assert rate <= 5.0 / 5.0 and backlog <= 5.0
    track.look(FilesSeen(21.0, (), {}))
    assert track.measure_offered(11.0, 21.0, PERIOD) == (0, 0)


def test_a_file_that_a_batch_took_and_removed_counts_whichever_is_seen_first():
    for unread_log in (False, True):
        track = FileTrack()
        track.look(FilesSeen(10.0, logged(0, 1.0), {}))
        track.add(report(None, 0, 5.0), 0.0)
        track.look(FilesSeen(20.0, (), {f"/in/1-{n}": ListedFile(11.0 + n) for n in range(9)}))
        taken = logged(1, *(11.0 + n for n in range(9)))
        # the log may be read a look after the listing that no longer has its files
        track.look(FilesSeen(21.0, () if unread_log else taken, {}))
        track.look(FilesSeen(22.0, taken if unread_log else (), {}))
        assert track.measure_offered(12.0, 22.0, PERIOD)[0] > 0


def test_an_offset_of_an_old_checkpoint_is_a_plain_number():
    track = FileTrack()
    old = tuple(LoggedFile(f"/in/old{n}", 1.0, n) for n in range(8))
    track.look(FilesSeen(10.0, old + logged(8, 9.0, 9.5), {}))
    track.add(report(7, 8, 20.0), 0.0)
    assert track.records_per_byte == 10


def test_entries_that_the_log_does_not_have_make_the_source_unknown():
    # the checkpoint's log is gone: every file in the directory would look unread
    track = FileTrack()
    there = {f"/in/{n}": ListedFile(n) for n in range(20)}
    track.look(FilesSeen(20.0, logged(0, 1.0), there))
    track.add(report(None, 0, 10.0), 0.0)
    assert track.add(report({"logOffset": 0}, 3, 100.0), 0.0) is not None
    rate, backlog = track.measure_offered(10.0, 20.0, PERIOD)
    assert math.isnan(rate) and backlog == 0
    assert "log" in track.problem
    track.look(FilesSeen(30.0, logged(4, 25.0), there))
    track.add(report({"logOffset": 3}, 4, 10.0), 0.0)
    assert not track.problem


def test_a_log_of_an_unknown_version_is_named(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "0").write_text('v9\n{"file": "a"}')
    watch = FileWatch(
        LogReader(LocalPlace(), str(tmp_path / "log")), LocalListing(ListingRule(str(tmp_path / "in")))
    )
    for at in (1.0, 11.0):
        problem = watch.look(at).problem
        assert "log/0" in problem and "v9" in problem and "another version of Spark" in problem


def test_a_directory_that_vanishes_and_returns(tmp_path):
    place = tmp_path / "in"
    place.mkdir()
    (place / "a").touch()
    watch = FileWatch(LogReader(LocalPlace(), str(tmp_path / "log")), LocalListing(ListingRule(str(place))))
    assert watch.look(1e3).present
    (place / "a").unlink()
    place.rmdir()
    seen = watch.look(2e3)
    assert seen.present is None and f"{place} is gone" in seen.problem
    place.write_text("a file now")
    assert not watch.look(3e3).problem
    place.unlink()
    place.mkdir()
    assert watch.look(4e3) == FilesSeen(4e3, (), {})


def test_directories_of_wild_cards_that_all_vanish_are_told(tmp_path):
    (tmp_path / "day=1").mkdir()
    listing = LocalListing(ListingRule(f"{tmp_path}/day=*"))
    watch = FileWatch(LogReader(LocalPlace(), str(tmp_path / "log")), listing)
    assert watch.look(1e3) == FilesSeen(1e3, (), {})
    (tmp_path / "day=1").rmdir()
    assert "nothing matches" in watch.look(2e3).problem
