"""A log read by several processes is the log read by one."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.log.application import TASK_COLUMNS
from penstock.diagnose.log.fields import drop_accumulables
from penstock.diagnose.log.files import find_logs
from penstock.diagnose.log.ranges import cut_ranges, feed_in_parts
from penstock.diagnose.log.reader import EventLogReader, read_application
from tests.diagnose.logs import LogBuilder, many_jobs, skewed_job, streaming_job


def failing_job():
    log = LogBuilder().executor("1", 100).job(0, 1000, [0]).stage(0, 1010, 3)
    for task in range(3):
        log.start(0, task, "1", 1020 + task)
    log.end(0, 1, "1", 1021, 1500, reason="ExceptionFailure", run=400)
    log.end(0, 0, "1", 1020, 1600, commit=70, load=5, python=3).start(0, 3, "1", 1610)
    log.lines.append(b'{"Event":"SparkListenerTaskEnd","Stage ID":0,"Task')
    log.end(0, 2, "1", 1022, 1700, reason="TaskKilled", metrics=False).end(0, 3, "1", 1610, 2500)
    log.lines.append(b"")
    return log.stage(0, 1010, 3, done=2505).job_end(0, 2510).application_end(2600)


LOGS = [skewed_job, lambda: many_jobs(6), lambda: streaming_job(4), failing_job]


def assert_same(one, other):
    assert one.tasks.executors == other.tasks.executors
    for name in TASK_COLUMNS:
        np.testing.assert_array_equal(one.tasks[name], other.tasks[name], name)
    for part in ("stages", "jobs", "executors", "executions", "batches", "query_names", "warnings"):
        assert getattr(one, part) == getattr(other, part), part
    for part in ("start", "end", "is_complete", "lines", "name", "application", "spark_version"):
        assert getattr(one, part) == getattr(other, part), part


def read_in_parts(path, step, processes):
    reader = EventLogReader()
    feed_in_parts(reader, path, cut_ranges(path, step), processes)
    return reader.build_log()


def read_alone(path):
    reader = EventLogReader()
    reader.feed(find_logs(path)[0].read_lines())
    return reader.build_log()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LOGS), st.integers(1, 4000), st.booleans())
def test_parts_joined_are_the_whole(tmp_path_factory, make, step, ends_with_newline):
    path = tmp_path_factory.getbasetemp() / "parts"
    path.write_bytes(b"\n".join(make().lines) + b"\n" * ends_with_newline)
    assert_same(read_in_parts(path, step, 1), read_alone(path))


def test_processes_read_the_same(tmp_path):
    path = tmp_path / "app-1"
    path.write_bytes(b"\n".join(many_jobs(40).lines))
    assert_same(read_in_parts(path, 5000, 2), read_alone(path))
    assert_same(read_application(find_logs(path)[0], processes=2), read_alone(path))


def test_ranges_cover_the_file_and_end_at_line_ends(tmp_path):
    path = tmp_path / "app-1"
    content = b"\n".join(many_jobs(3).lines)
    path.write_bytes(content)
    ranges = cut_ranges(path, 1000)
    assert (ranges[0][0], ranges[-1][1]) == (0, len(content))
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    assert all(content[end - 1 : end] == b"\n" for _, end in ranges[:-1])


@pytest.mark.parametrize("name", ["time to commit changes", "time to execute Python code", "other"])
@pytest.mark.parametrize("after", ["Task Metrics", "Task Executor Metrics"])
def test_what_is_dropped_of_a_task_changes_nothing_that_is_read(name, after):
    accumulables = [
        {"ID": 1, "Name": 'odd ]},"Task Metrics":{ name', "Update": "1"},
        {"ID": 2, "Name": name, "Update": "70"},
        {"ID": 3, "Name": "blocks", "Update": [{"a": [1]}], "Value": {"b": [{}]}},
    ]
    information = {"Finish Time": 1, "Accumulables": accumulables}
    event = {"Event": "SparkListenerTaskEnd", "Task Info": information, after: {"x": 1}}
    line = json.dumps(event, separators=(",", ":")).encode()
    slim = json.loads(drop_accumulables(line))
    kept = slim["Task Info"].pop("Accumulables")
    assert slim == {**event, "Task Info": {"Finish Time": 1}}
    assert kept == (accumulables if name != "other" else [])
