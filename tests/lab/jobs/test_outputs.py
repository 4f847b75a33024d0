"""Outputs are read as Spark would read them, and differences from the right answer are found."""

import sqlite3
from collections import Counter
from contextlib import closing

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lab.jobs import outputs
from penstock_lab.jobs.catalog import JOBS
from penstock_lab.jobs.contents import Fed
from penstock_lab.jobs.places import RunPlace

ROWS = st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(1, 3)).map(Counter)


@given(ROWS, ROWS)
def test_equal_means_equal(answer, found):
    assert outputs.compare_rows(answer, found).equal == (answer == found)
    assert outputs.compare_rows(answer, found, at_least_once=True).equal == (
        answer.keys() == found.keys() and answer <= found
    )


def test_a_comparison_says_what_differs():
    found = outputs.compare_rows(Counter({(1,): 1, (2,): 1, (3,): 1}), Counter({(2,): 2, (3,): 1, (4,): 1}))
    assert (found.missing, found.unexpected, found.repeated) == (1, 1, 1)
    assert found.examples == ((1,), (4,), (2,)) and not found.equal


def write_part(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def log_entry(*paths):
    lines = [orjson.dumps({"path": path.as_uri(), "size": 1, "action": "add"}).decode() for path in paths]
    return "\n".join(["v1", *lines])


def test_only_committed_files_of_a_sink_count(tmp_path):
    sink = tmp_path / "out with space"
    one, two, three, lost = (write_part(sink / f"part-{n}.parquet", a=[n], b=["x"]) for n in range(4))
    log = sink / "_spark_metadata"
    log.mkdir()
    (log / "0").write_text(log_entry(one))
    (log / "1.compact").write_text(log_entry(one, two))
    (log / "2").write_text(log_entry(three))
    (log / ".2.crc").write_bytes(b"\0\1")
    (log / ".3.abc.tmp").write_text(log_entry(lost))
    assert outputs.read_appended(sink, ("b", "a")) == Counter([("x", 0), ("x", 1), ("x", 2)])


def test_the_newest_row_of_each_key_counts(tmp_path):
    for batch, rows in {2: [(1, 5)], 10: [(1, 7), (2, 1)], 9: [(1, 6)], 11: [(1, 8)]}.items():
        keys, values = zip(*rows, strict=True)
        write_part(tmp_path / f"batch={batch}" / "part-0.parquet", key=keys, value=values)
        if batch != 11:
            (tmp_path / f"batch={batch}" / "_SUCCESS").touch()
    assert outputs.read_newest(tmp_path, ("key",), ("key", "value")) == Counter([(1, 7), (2, 1)])


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_milliseconds(tmp_path, unit, zone):
    moment = pa.array([1_767_225_600_123], pa.timestamp("ms", zone)).cast(pa.timestamp(unit, zone))
    write_part(tmp_path / "batch=0" / "part-0.parquet", moment=moment)
    (tmp_path / "batch=0" / "_SUCCESS").touch()
    assert outputs.read_newest(tmp_path, ("moment",), ("moment",)) == Counter([(1_767_225_600_123,)])


def test_three_places_are_read_together(tmp_path):
    place = RunPlace(tmp_path)
    columns = {"order_id": [1, 2], "customer": ["a", "a"], "product": [5, 5], "amount": [10, 20]}
    write_part(place.output / "batch=0" / "part-0.parquet", **columns)
    (place.output / "batch=0" / "_SUCCESS").touch()
    with closing(sqlite3.connect(place.database)) as connection, connection:
        connection.execute("create table customers (customer, number, amount)")
        connection.execute("insert into customers values ('a', 2, 20)")
        connection.execute("create table batches (batch, product, orders)")
        connection.executemany("insert into batches values (?, 5, ?)", [(0, 1), (1, 1)])
    assert set(outputs.read_three_places(place)) == {
        ("customers", "a", 2, 20),
        ("counts", 5, 2),
        ("orders", 1, "a", 5, 10),
        ("orders", 2, "a", 5, 20),
    }


@pytest.mark.parametrize("name", [name for name in JOBS if name != "kafka-windows"])
def test_a_job_that_wrote_nothing_is_found_out(tmp_path, name):
    job, fed = JOBS[name], Fed("constant:20", 40)
    found = job.check(RunPlace(tmp_path), fed)
    assert found.missing == len(job.answer(job.content, fed)) > 0
    assert not found.equal
