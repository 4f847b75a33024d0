"""Windows are read from JSON lines; what is wrong is set aside with the reason."""

from __future__ import annotations

import numpy as np
import orjson
import pytest

from penstock.fleet.records import read_lines
from tests.fleet.agents import a_record, a_table


def lines(*records: object) -> list[bytes]:
    return [record if isinstance(record, bytes) else orjson.dumps(record) for record in records]


def test_json_lines_become_columns():
    table = a_table(a_record("a"), a_record("b", end=20.0))
    assert table["application"].to_pylist() == ["a", "b"]
    assert np.isnan(table["driver_heap_used_bytes"].to_numpy()).all(), "what was not measured is NaN"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"application": ""}, "no name"),
        ({"application": None}, "no name"),
        ({"application": "a\0b"}, "NUL"),
        ({"end": 0.0, "start": 0.0}, "does not end after"),
        ({"end": None}, "does not end after"),
        ({"end": 1e-50, "start": 0.0}, "does not end after"),
        ({"held_parallelism": 0}, "held size"),
        ({"held_heap_bytes": None}, "held size"),
        ({"held_cores": 1, "held_task_cpus": 2}, "held size"),
        ({"held_cores": 2.5}, "held size"),
        ({"held_parallelism": 1e30}, "held size"),
        ({"held_heap_bytes": 1.5e308}, "held size"),
        ({"held_driver_heap_bytes": 1e300}, "held size"),
        ({"needed_parallelism": 1e30}, "larger than it can be"),
        ({"gc_seconds": -1.0}, "negative or infinite"),
        ({"backlog_records": 1e300}, "negative or infinite"),
    ],
)
def test_a_window_that_makes_no_sense_is_set_aside(changes: dict[str, object], reason: str):
    read = read_lines(
        lines(a_record("good"), a_record("bad", **{}) | changes, a_record("fine")), ["file-1"] * 3
    )
    assert read.windows["application"].to_pylist() == ["good", "fine"]
    (bad,) = read.dead.to_pylist()
    assert reason in bad["reason"] and bad["origin"] == "file-1" and bad["record"].startswith("{")


@pytest.mark.parametrize(
    "line",
    [b"nonsense", b"[1, 2]", b'{"application": ', b'{"end": "late"}', b"7", b"\xff\xfe", b"null", b"{}{}"],
)
def test_a_line_that_is_no_window_costs_no_more_than_itself(line: bytes):
    read = read_lines(lines(a_record("a"), line, a_record("b"), b"  "), ["file-1"] * 4)
    assert read.windows["application"].to_pylist() == ["a", "b"]
    assert read.dead.num_rows == 1 and read.dead["reason"][0].as_py()


def test_lines_of_nothing_but_nulls_end_no_process():
    """Arrow's reader of JSON crashes on them, and a job that meets them again after each start never runs."""
    read = read_lines([b"null", b" null"], ["file-1", "file-2"])
    assert read.windows.num_rows == 0
    assert read.dead["reason"].to_pylist() == ["not a JSON object"] * 2
    assert read.dead["origin"].to_pylist() == ["file-1", "file-2"]


def test_a_text_that_is_no_text_is_set_aside():
    """Bytes that are no UTF-8 would stop the job where a bucket is found by the application's name."""
    spoilt = orjson.dumps(a_record("NAME")).replace(b"NAME", b"caf\xe9")
    read = read_lines([*lines(a_record("a")), spoilt], ["file-1"] * 2)
    assert read.windows["application"].to_pylist() == ["a"]
    assert "UTF-8" in read.dead["reason"][0].as_py() and read.dead.num_rows == 1


def test_bad_lines_among_many_leave_the_others_in_their_order():
    bad = {3, 4, 11, 29}
    given = [b'{"end": ' if number in bad else orjson.dumps(a_record(f"{number}")) for number in range(30)]
    read = read_lines(given, [f"file-{number}" for number in range(30)])
    assert read.windows["application"].to_pylist() == [str(n) for n in range(30) if n not in bad]
    assert read.dead["origin"].to_pylist() == [f"file-{number}" for number in sorted(bad)]


def test_a_window_from_the_future_is_set_aside():
    """Taken for the newest, it would make all windows after it look late for good."""
    read = read_lines(lines(a_record("a", end=90.0), a_record("b", end=110.0)), ["file-1"] * 2, latest=100.0)
    assert read.windows["application"].to_pylist() == ["a"]
    assert read.dead["reason"].to_pylist() == ["the window ends in the future"]


def test_nothing_is_nothing():
    read = read_lines([], [])
    assert (read.windows.num_rows, read.dead.num_rows) == (0, 0)
