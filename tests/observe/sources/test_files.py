"""Files of a source become an offered rate and a backlog: whatever the batching, plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.observe.progress import SourceProgress
from penstock.observe.sources.current_rate import arrival_rate
from penstock.observe.sources.file_log import LoggedFile
from penstock.observe.sources.files import FilesSeen, FileTrack
from penstock.observe.sources.listing import ListedFile

FILES = "FileStreamSource[file:/in]"
PERIOD = 5.0


def report(first, last, records):
    begin = None if first < 0 else {"logOffset": first}
    return SourceProgress(FILES, begin, {"logOffset": last}, None, records)


def files(entry, *moments):
    return tuple(LoggedFile(f"/in/{entry}-{n}", at, entry) for n, at in enumerate(moments))


def present(*moments, name="w"):
    return {f"/in/{name}{n}": ListedFile(at) for n, at in enumerate(moments)}


class Stream:
    """A directory, and a query that takes at most some files a batch, seen by a track.

    A file has a record for every ten of its bytes, which nobody tells of a directory whose files are removed.
    """

    def __init__(self, files, most, kept):
        arrivals, sizes = zip(*sorted(files), strict=True)
        self.arrivals, self.most, self.kept = arrivals, most, kept
        self.sizes = sizes if kept else [math.nan] * len(sizes)
        self.records = [size / 10 if kept else 25.0 for size in sizes]
        self.taken = self.reported = 0
        self.entries = []
        self.unseen = []
        self.track = FileTrack()

    def name(self, number):
        return f"/in/{number}"

    def plan(self, now):
        """Take what is there, as Spark does when a batch is planned."""
        there = sum(at <= now for at in self.arrivals)
        numbers = range(self.taken, min(there, self.taken + self.most))
        if numbers:
            entry = len(self.entries)
            self.entries.append(len(numbers))
            self.unseen += [LoggedFile(self.name(n), self.arrivals[n], entry) for n in numbers]
            self.taken = numbers[-1] + 1

    def end(self):
        """Return the report of the oldest batch that was planned and not yet reported."""
        if self.reported == len(self.entries):
            return []
        self.reported += 1
        before = sum(self.entries[: self.reported - 1])
        read = sum(self.records[before : before + self.entries[self.reported - 1]])
        return [report(self.reported - 2, self.reported - 1, read)]

    def look(self, now, reports):
        """Look with a directory from which files that were read are removed, unless they are kept."""
        first = 0 if self.kept else self.taken
        there = {
            self.name(n): ListedFile(at, self.sizes[n])
            for n, at in enumerate(self.arrivals)
            if at <= now and n >= first
        }
        self.track.look(FilesSeen(now, tuple(self.unseen), there))
        self.unseen = []
        for told in reports:
            self.track.add(told, now)


events = st.lists(
    st.tuples(st.sampled_from(["plan", "end", "look"]), st.floats(0.01, 20)), min_size=5, max_size=60
)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.floats(0, 200), st.integers(1, 10_000)), min_size=1, max_size=120),
    st.integers(1, 50),
    events,
    st.booleans(),
)
def test_in_whatever_batches_files_are_read_rate_and_backlog_are_plain_arithmetic(
    arriving, most, steps, kept
):
    stream, now, waiting_reports = Stream(arriving, most, kept), 0.0, []
    for what, seconds in steps:
        now += seconds
        if what == "plan":
            stream.plan(now)
        elif what == "end":
            waiting_reports += stream.end()
        else:
            stream.look(now, waiting_reports)
            waiting_reports = []
    stream.look(now, waiting_reports)
    rate, backlog = stream.track.measure_offered(now - 10, now, PERIOD)
    if not stream.reported:
        assert math.isnan(rate)
        return
    came = np.array([at for at in stream.arrivals if at <= now])
    records = np.array(stream.records[: len(came)])
    expected = arrival_rate(came, now - 10, now, records)
    assert rate == pytest.approx(expected)
    unread = records[sum(stream.entries[: stream.reported]) :].sum()
    assert backlog == pytest.approx(max(0.0, unread - 2 * PERIOD * expected), abs=1e-6)
    idle = stream.track.idle_seconds
    assert idle == 0 if unread else idle <= now - came[-1] + 1e-9


def test_records_are_those_of_the_newest_batches():
    track = FileTrack()
    for entry in range(20):
        track.look(FilesSeen(float(entry), files(entry, *[float(entry)] * 16), {}))
        track.add(report(entry - 1, entry, 16 * (100.0 if entry < 18 else 500.0)), 0.0)
    assert track.records_per_byte == 500


def test_files_that_grow_are_a_rising_rate_before_a_batch_with_them_has_ended():
    """A writer has a file for each quarter of a second: at twice the rate it is twice as large."""
    track = FileTrack()
    small = {file.path: ListedFile(file.modified, 1000.0) for file in files(0, *np.arange(0, 10, 0.25))}
    track.look(FilesSeen(10.0, tuple(LoggedFile(path, at, 0) for path, (at, _) in small.items()), small))
    track.add(report(-1, 0, 10 * 40.0), 0.0)
    assert track.measure_offered(0.0, 10.0, PERIOD)[0] == pytest.approx(40.0, rel=0.05)
    large = {path: ListedFile(at, 2000.0) for path, (at, _) in present(*np.arange(10, 30, 0.25)).items()}
    track.look(FilesSeen(30.0, (), small | large))
    rate, backlog = track.measure_offered(20.0, 30.0, PERIOD)
    assert rate == pytest.approx(80.0, rel=0.05)
    assert backlog == pytest.approx(20 * 80.0 - 2 * PERIOD * rate, rel=0.05)


def test_bytes_that_a_later_listing_shows_count():
    track = FileTrack()
    track.look(FilesSeen(10.0, files(0, 1.0), {"/in/0-0": ListedFile(1.0, 100.0)}))
    track.add(report(-1, 0, 10.0), 0.0)
    for size in (math.nan, 1000.0):
        track.look(FilesSeen(20.0, (), {"/in/0-0": ListedFile(1.0, 100.0), "/in/w": ListedFile(19.0, size)}))
    assert track.measure_offered(10.0, 20.0, 0.0)[1] == pytest.approx(100.0)


def test_a_file_of_unknown_size_is_like_those_of_late():
    """Files have grown tenfold: by the mean of all that ever came ten times the rate was told."""
    track = FileTrack()
    for entry in range(100):
        taken = files(entry, float(entry))
        there = {file.path: ListedFile(file.modified, 100.0 if entry < 60 else 1000.0) for file in taken}
        track.look(FilesSeen(float(entry), taken, there))
        track.add(report(entry - 1, entry, 10.0 if entry < 60 else 100.0), 0.0)
    for entry in range(100, 108):
        track.look(FilesSeen(float(entry), files(entry, float(entry)), None))
        track.add(report(entry - 1, entry, 100.0), 0.0)
    track.look(FilesSeen(118.0, (), {f"/in/w{n}": ListedFile(108.0 + n, 1000.0) for n in range(10)}))
    assert track.measure_offered(108.0, 118.0, 0.0)[0] == pytest.approx(100.0, rel=0.15)


def test_files_without_bytes_have_no_records():
    track = FileTrack()
    empty = {file.path: ListedFile(file.modified, 0.0) for file in files(0, 1.0, 2.0)}
    track.look(FilesSeen(3.0, files(0, 1.0, 2.0), empty))
    track.add(report(-1, 0, 0.0), 0.0)
    assert track.measure_offered(0.0, 3.0, PERIOD) == (0.0, 0.0)


def test_a_batch_of_several_entries():
    track = FileTrack()
    track.look(FilesSeen(10.0, files(0, 1.0) + files(1, 2.0, 3.0), {}))
    track.add(report(-1, 1, 90.0), 0.0)
    assert (track.files, track.records_per_byte) == (3, 30)
    assert track.arrivals is not None
    assert (track.arrivals.mean, track.arrivals.oldest, track.arrivals.records) == (2.0, 1.0, 90.0)


def test_a_restart_from_an_old_checkpoint_is_exact_with_its_first_report():
    """The log has a history; what the new run reads is told by its own entries."""
    track = FileTrack()
    history = tuple(file for entry in range(40) for file in files(entry, 100.0 + entry))
    there = {file.path: ListedFile(file.modified) for file in history} | present(5000.0, 5001.0)
    track.look(FilesSeen(5002.0, history, there))
    assert math.isnan(track.measure_offered(4992.0, 5002.0, PERIOD)[0])
    track.look(FilesSeen(5012.0, (LoggedFile("/in/w0", 5000.0, 40), LoggedFile("/in/w1", 5001.0, 40)), there))
    track.add(report(39, 40, 14.0), 0.0)
    assert track.records_per_byte == 7
    assert track.measure_offered(5002.0, 5012.0, PERIOD) == (0, 0)


def test_a_log_too_long_to_read_whole_leaves_no_phantom_backlog():
    track = FileTrack()
    old = {f"/in/old{n}": ListedFile(10.0) for n in range(1000)}
    track.look(FilesSeen(50.0, files(7, 40.0, 41.0), old | present(45.0), read_before=40.0))
    track.add(report(6, 7, 20.0), 0.0)
    assert track.measure_offered(40.0, 50.0, 0.1)[1] == pytest.approx(10, rel=0.1)


def test_files_removed_before_they_were_read_wait_no_more():
    track = FileTrack()
    track.look(FilesSeen(10.0, files(0, 1.0), present(2.0, 3.0)))
    track.add(report(-1, 0, 5.0), 0.0)
    track.look(FilesSeen(40.0, (), {}))
    assert track.measure_offered(30.0, 40.0, PERIOD) == (0, 0)
    assert track.idle_seconds == 30


def test_a_file_that_came_again_under_its_name_is_not_read_again():
    track = FileTrack()
    track.look(FilesSeen(10.0, files(0, 1.0), {}))
    track.add(report(-1, 0, 5.0), 0.0)
    track.look(FilesSeen(20.0, (), {"/in/0-0": ListedFile(15.0)}))
    assert track.measure_offered(10.0, 20.0, PERIOD) == (0, 0)


@pytest.mark.parametrize(("shift", "word"), [(3600.0, "after"), (-3600.0, "before")])
def test_files_of_another_clock_count_when_they_are_listed(shift, word):
    track = FileTrack()
    track.look(FilesSeen(100.0, files(0, 99.0), {}))
    track.add(report(-1, 0, 10.0), 0.0)
    warnings = []
    for step in range(1, 4):
        at = 100.0 + 10 * step
        came = {f"/in/{step}-{n}": ListedFile(at - 9 + n * 0.4 + shift) for n in range(20)}
        taken = tuple(LoggedFile(path, file.modified, step) for path, file in came.items())
        warnings.append(track.look(FilesSeen(at, taken, came)))
        track.add(report(step - 1, step, 200.0), 0.0)
    assert f"new files bear times 3595 s {word} the moment at which they were seen" in str(warnings[-1])
    rate, backlog = track.measure_offered(120.0, 130.0, PERIOD)
    assert rate == pytest.approx(20.0, rel=0.1)
    assert backlog == 0


def test_clocks_a_little_apart_lose_no_file():
    track = FileTrack()
    track.look(FilesSeen(100.0, files(0, 99.0), {}))
    track.add(report(-1, 0, 10.0), 0.0)
    for step in range(1, 6):
        at = 100.0 + 10 * step
        came = {f"/in/{step}-{n}": ListedFile(at - 10 + n * 0.5 + 2.0) for n in range(20)}
        taken = tuple(LoggedFile(path, file.modified, step) for path, file in came.items())
        assert track.look(FilesSeen(at, taken, came)) is None
        track.add(report(step - 1, step, 200.0), 0.0)
    assert track.measure_offered(140.0, 150.0, PERIOD)[0] == pytest.approx(20.0, rel=0.25)


def test_a_directory_that_is_gone_makes_the_rate_unknown_until_it_is_back():
    track = FileTrack()
    track.look(FilesSeen(10.0, files(0, 1.0), {}))
    track.add(report(-1, 0, 5.0), 0.0)
    assert track.look(FilesSeen(20.0, problem="/in is gone")) == "/in is gone"
    assert math.isnan(track.measure_offered(10.0, 20.0, PERIOD)[0])
    assert track.idle_seconds == 0
    track.look(FilesSeen(25.0))
    assert math.isnan(track.measure_offered(10.0, 25.0, PERIOD)[0]), "a look without a listing mends nothing"
    track.look(FilesSeen(30.0, (), {}))
    assert track.measure_offered(20.0, 30.0, PERIOD) == (0, 0)


def test_a_listing_that_rests_leaves_the_rate_of_the_last_one():
    track = FileTrack()
    track.look(FilesSeen(10.0, files(0, 1.0), present(*range(2, 10))))
    track.add(report(-1, 0, 5.0), 0.0)
    assert track.measure_offered(0.0, 10.0, PERIOD)[0] == pytest.approx(5.0, rel=0.15)
    track.look(FilesSeen(20.0))
    assert track.measure_offered(10.0, 20.0, PERIOD)[0] == pytest.approx(5.0, rel=0.15)


def test_a_running_batch_has_its_files_in_the_backlog():
    track = FileTrack()
    track.look(FilesSeen(10.0, files(0, 1.0), {}))
    track.add(report(-1, 0, 5.0), 0.0)
    track.look(FilesSeen(100.0, files(1, *range(10, 50)), present(*range(50, 100))))
    assert track.measure_offered(90.0, 100.0, PERIOD)[1] == pytest.approx(5 * (90 - 10))


def test_before_the_first_file_there_is_no_offset_and_nothing_to_tell():
    assert FileTrack().add(SourceProgress(FILES, None, None, None, 0.0), 0.0) is None


def test_an_offset_of_another_form_is_told():
    track = FileTrack()
    told = SourceProgress(FILES, None, "odd", None, 5.0)
    assert "an offset of its log was expected" in str(track.add(told, 0.0))


def test_memory_is_bounded():
    track = FileTrack()
    for entry in range(3000):
        logged = tuple(LoggedFile(f"/in/{entry}-{n}", entry, entry) for n in range(30))
        track.look(FilesSeen(entry + 1.0, logged, {}))
        track.add(report(entry - 1, entry, 30.0), 0.0)
    assert len(track._taken) < 25_000
    assert len(track._entries) <= 512
    assert len(track._arrivals) <= 20_000
