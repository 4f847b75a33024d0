"""Feeds send every record once, when it is due, in files that appear whole."""

import json
import subprocess
import sys
import threading

import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.simulate.profiles import parse_profile, records_offered
from penstock_lab.jobs.catalog import find_job
from penstock_lab.jobs.contents import Fed, OrdersAndPayments, OrderStream
from penstock_lab.jobs.feed import feed_job
from penstock_lab.jobs.feeds import DirectoryOutlet, cut_feed, pace_by_clock, run_feed, send_at_once
from penstock_lab.jobs.places import RunPlace

RATES = st.floats(0, 500)
PROFILES = st.one_of(
    RATES.map(lambda rate: f"constant:{rate!r}"),
    st.tuples(RATES, RATES).map(lambda pair: f"steps:0={pair[0]!r},3.3={pair[1]!r}"),
    st.tuples(RATES, RATES).map(
        lambda pair: f"bursts:base={min(pair)!r},peak={max(pair)!r},every=4,length=1.5"
    ),
)


@given(PROFILES, st.floats(0.5, 30), st.floats(0.05, 12))
def test_slices_are_all_records_once_each_when_they_are_due(profile, seconds, every):
    fed = Fed(profile, seconds)
    slices = list(cut_feed(fed, every))
    ends = [0, *(part.first + part.count for part in slices)]
    assert [part.first for part in slices] == ends[:-1] and ends[-1] == fed.records
    for part in slices:
        assert part.count > 0 and part.due <= seconds
        assert part.first + part.count == records_offered(parse_profile(profile), part.due)
        assert part.due <= (part.number + 1) * every


class Kept:
    """An outlet that remembers what it was sent, and when by the feed's own clock."""

    def __init__(self):
        self.numbers, self.sent = [], []

    def send(self, part, batch):
        self.numbers += batch.column("number").to_pylist()
        self.sent.append(part.due)


def test_a_feed_waits_until_each_slice_is_due():
    waited, kept = [], Kept()

    def pace(due):
        waited.append((due, len(kept.numbers)))
        return 0.25 if due == 2.0 else 0.0

    fed = Fed("steps:0=10,2=30", 4)
    told = list(run_feed(OrderStream(), fed, 1.0, {"orders": kept}, pace))
    assert waited == [(1.0, 0), (2.0, 10), (3.0, 20), (4.0, 50)]
    assert kept.numbers == list(range(80))
    assert [(sent.records, sent.seconds) for sent in told] == [(10, 1.0), (20, 2.0), (50, 3.0), (80, 4.0)]
    assert [sent.most_late_seconds for sent in told] == [0.0, 0.25, 0.25, 0.25]


def test_a_stream_without_records_in_a_slice_gets_none():
    outlets = {"orders": Kept(), "payments": Kept()}
    list(run_feed(OrdersAndPayments(), Fed("constant:1", 4), 1.0, outlets, send_at_once))
    assert (outlets["orders"].numbers, outlets["orders"].sent) == ([0, 2], [1.0, 3.0])
    assert (outlets["payments"].numbers, outlets["payments"].sent) == ([1, 3], [2.0, 4.0])


def test_the_clock_is_never_early():
    wait = pace_by_clock(start=0.0)
    assert wait(1.0) > 0, "1970 is long over"


@pytest.mark.parametrize("name", ["small-files-lookup", "available-now", "stream-join"])
def test_the_same_feed_writes_the_same_files(tmp_path, name):
    job, fed = find_job(name), Fed("steps:0=20,8=60", 12, seed=4)
    for run in ("one", "other"):
        feed_job(job, RunPlace(tmp_path / run), fed, at_once=True)
    for stream in job.content.streams:
        one, other = (RunPlace(tmp_path / run).input(stream) for run in ("one", "other"))
        files = sorted(path.name for path in one.iterdir())
        assert files == sorted(path.name for path in other.iterdir())
        rows = [row for file in files for row in read_rows(one / file)]
        assert rows == [row for file in files for row in read_rows(other / file)]
        expected = job.content.batch(fed, stream, 0, fed.records).to_pylist()
        assert [row["number"] for row in rows] == [row["number"] for row in expected]
        assert [row.get("amount") for row in rows] == [row.get("amount") for row in expected]


def read_rows(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_reader_sees_whole_files_only(tmp_path, form):
    seen, done = {}, threading.Event()

    def look():
        while True:
            last = done.is_set()
            for path in tmp_path.iterdir():
                if path.name[0] not in "._" and path.name not in seen:
                    seen[path.name] = len(read_rows(path))
            if last:
                return

    reader = threading.Thread(target=look)
    reader.start()
    outlet = {"orders": DirectoryOutlet(tmp_path, form)}
    list(run_feed(OrderStream(), Fed("constant:2000", 20), 1.0, outlet, send_at_once))
    done.set()
    reader.join()
    assert seen == {f"part-{number:06d}.{form}": 2000 for number in range(20)}


def test_the_command_feeds_and_says_how_far_it_is(tmp_path):
    command = [sys.executable, "-m", "penstock_lab.jobs.feed", "static-join", str(tmp_path / "run")]
    subprocess.run([*command, "--rate", "constant:50", "--seconds", "1"], check=True)
    place = RunPlace(tmp_path / "run")
    state = json.loads(place.feed_state.read_text())
    assert (state["records"], state["of_records"], state["seconds"], state["ended"]) == (50, 50, 1.0, True)
    assert state["most_late_seconds"] >= 0
    assert (place.tables / "watch-list.parquet").exists()
    assert sum(len(read_rows(path)) for path in place.input("orders").iterdir()) == 50
    assert not list(place.directory.rglob(".*"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["static-joint", "DIR", "--rate", "constant:1", "--seconds", "1"], "did you mean 'static-join'"),
        (["static-join", "DIR", "--rate", "often", "--seconds", "1"], "often"),
        (["static-join", "DIR", "--rate", "constant:1", "--seconds", "0"], "more than 0 s"),
        (["kafka-windows", "DIR", "--rate", "constant:1", "--seconds", "1"], "needs a Kafka broker"),
        (["remote-lookup", "DIR", "--rate", "constant:1", "--seconds", "1"], "needs the lookup service"),
    ],
)
def test_bad_usage_is_one_clear_line(tmp_path, arguments, complaint):
    given = [str(tmp_path) if word == "DIR" else word for word in arguments]
    ran = subprocess.run(
        [sys.executable, "-m", "penstock_lab.jobs.feed", *given], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert complaint in ran.stderr and ran.stderr.count("\n") == 1
