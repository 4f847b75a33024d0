"""Event logs: what is read, what is repaired, and that no cut is fatal."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.log.application import (
    TASK_COLUMNS,
    TASK_METRICS,
    read_live_metrics,
    read_logged_metrics,
)
from penstock.diagnose.log.fields import name_chain
from penstock.diagnose.log.files import find_logs
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.path.summary import summarise
from penstock.diagnose.trace.events import Activity, Kind
from penstock.diagnose.trace.from_log import build_timelines
from penstock.errors import BadInput
from tests.diagnose.logs import BASE, LogBuilder, skewed_job
from tests.diagnose.packers import PACKERS


def shares(log):
    """Critical participation by worker, activity and phase, of the whole log."""
    found = build_timelines(log)
    graph = build_graph(found.build_trace(), gap_threshold_us=0)
    (window,) = cut_windows(graph)
    result = measure_participation(graph, window)
    names = {}
    for event in np.nonzero(result.local)[0]:
        work = graph.trace.works[graph.edge_work[event]]
        worker = graph.trace.workers[graph.trace.worker[event]]
        key = worker, Activity(graph.edge_activity[event]), work.phase
        names[key] = names.get(key, 0) + float(result.local[event])
    return names, result, graph, found


def test_a_skewed_task_is_on_the_critical_path_and_its_siblings_are_not():
    names, result, graph, found = shares(read_log(skewed_job().lines))
    straggler = max(names, key=names.get)
    assert straggler[0].startswith("executor 2 slot") and straggler[2] == "run"
    assert names[straggler] > 0.6
    assert result.local.sum() + result.message.sum() == pytest.approx(1)
    assert result.length_us == 8_500_000
    assert (result.instrumentation.uncaused_events, result.instrumentation.silent_spans) == (0, 0)
    assert graph.repairs.receives_without_send == graph.repairs.sends_without_receive == 0
    assert graph.repairs.overlapping_activities == 0
    assert found.warnings == {}


def test_a_fetch_is_a_question_and_an_answer_with_data():
    _, _, graph, found = shares(read_log(skewed_job().lines))
    trace = found.build_trace()
    data = (trace.activity == Activity.DATA_MESSAGE) & (trace.kind == Kind.RECEIVE)
    channels = {(trace.workers[trace.remote[i]], trace.workers[trace.worker[i]]) for i in np.nonzero(data)[0]}
    assert ("executor 1 shuffle", "executor 2 slot 0") in channels or (
        "executor 1 shuffle", "executor 2 slot 1") in channels  # fmt: skip
    assert all(graph.source[i] >= 0 for i in np.nonzero(data)[0])


def test_a_fetch_from_a_stage_that_was_skipped_asks_who_ran_it_before():
    log = LogBuilder().executor("1", 0).executor("2", 0)
    log.job(0, 100, [3]).stage(3, 110, 1).start(3, 0, "2", 120)
    log.end(3, 0, "2", 120, 400, run=250, written=1000).stage(3, 110, 1, done=400).job_end(0, 410)
    log.job(1, 500, [4, 5], skipped=[(4, 3)]).stage(5, 510, 1, parents=[4]).start(5, 1, "1", 520)
    log.end(5, 1, "1", 520, 3000, run=2400, fetch=2000, remote=900).stage(5, 510, 1, parents=[4], done=3000)
    _, result, graph, _ = shares(read_log(log.job_end(1, 3010).application_end(3100).lines))
    found = summarise(graph, result)
    source, target, share = found.communication[0]
    assert (source, target) == ("executor 2 shuffle", "executor 1 slot 0")
    assert share > 0.6


def test_a_slow_driver_is_the_critical_path():
    log = LogBuilder().executor("1", 100)
    for job in range(3):
        at = 1000 + 5000 * job
        log.job(job, at, [job]).stage(job, at + 5, 1).start(job, job, "1", at + 10)
        log.end(job, job, "1", at + 10, at + 400, run=300).job_end(job, at + 410)
    names, *_ = shares(read_log(log.application_end(12_000).lines))
    assert max(names, key=names.get) == ("driver", Activity.PROCESSING, "program")


def test_micro_batch_phases_come_from_progress_events():
    log = LogBuilder().executor("1", 100)
    for batch in range(2):
        at = 1000 + 4000 * batch
        properties = {"sql.streaming.queryId": "abcdefgh-1", "streaming.sql.batchId": str(batch)}
        log.job(batch, at + 700, [batch], properties).stage(batch, at + 705, 1).start(
            batch, batch, "1", at + 710
        )
        log.end(batch, batch, "1", at + 710, at + 1500, run=700, load=100, commit=200).job_end(
            batch, at + 1510
        )
        moment = f"2023-11-14T22:13:{20 + at // 1000:02d}.000Z"
        phases = {"latestOffset": 100, "walCommit": 200, "queryPlanning": 300, "commitOffsets": 150,
                  "triggerExecution": 2000}  # fmt: skip
        progress = {"id": "abcdefgh-1", "runId": "r", "batchId": batch, "name": "counts",
                    "timestamp": moment, "durationMs": phases, "sources": []}  # fmt: skip
        log.add("org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent", progress=progress)
    read = read_log(log.application_end(7500).lines)
    assert [batch.start - BASE for batch in read.batches] == [1000, 5000]
    names, _, _, found = shares(read)
    assert names["driver", Activity.IO, "trigger wait"] == pytest.approx(2000 / 7500, rel=0.05)
    assert names["driver", Activity.IO, "offset log"] == pytest.approx(400 / 7500, rel=0.05)
    assert names["driver", Activity.IO, "commit log"] == pytest.approx(300 / 7500, rel=0.05)
    assert names["executor 1 slot 0", Activity.IO, "state commit"] == pytest.approx(400 / 7500, rel=0.05)
    assert names["executor 1 slot 0", Activity.IO, "state load"] == pytest.approx(200 / 7500, rel=0.05)
    assert {work.operator for work in found.build_trace().works} >= {"counts 1: Scan"}


def test_repairs_are_counted_and_the_graph_stays_whole():
    log = LogBuilder().executor("1", 100, cores=1)
    log.job(0, 1000, [0]).stage(0, 1001, 5)
    for task, (launch, finish) in enumerate([(1010, 1100), (1098, 1200), (1199, 1300), (1300, 1300)]):
        log.start(0, task, "1", launch)
        log.end(0, task, "1", launch, finish, run=500 if task == 2 else 50, gc=90)
    log.start(0, 4, "1", 1301).start(0, 5, "lost", 1301)
    log.end(0, 5, "lost", 1301, 1400, reason="ExecutorLostFailure", metrics=False)
    names, result, graph, found = shares(read_log(log.lines))
    assert found.warnings["tasks with phases that are longer than the task"] == 2
    assert found.warnings["tasks whose phases are longer than their run"] == 3
    assert found.warnings["tasks whose end is not in the log"] == 1
    assert found.warnings["finished tasks without metrics"] == 1
    assert graph.repairs.overlapping_activities == 0
    assert graph.repairs.sends_without_receive == 0
    assert result.local.sum() + result.message.sum() + result.crossing.sum() == pytest.approx(1)
    assert len(names) > 1


def test_a_large_result_is_fetched_as_data():
    log = LogBuilder().executor("1", 100).job(0, 1000, [0]).stage(0, 1001, 1).start(0, 0, "1", 1010)
    log.end(0, 0, "1", 1010, 3000, run=900, getting=2000).job_end(0, 3001)
    _, result, graph, _ = shares(read_log(log.application_end(3100).lines))
    data = graph.trace.activity == Activity.DATA_MESSAGE
    assert result.message[data].sum() == pytest.approx(1000 / 3100, rel=0.1)
    assert graph.repairs.receives_without_send == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_a_log_cut_at_any_byte_is_read_as_far_as_it_goes(cut):
    content = b"\n".join(skewed_job().lines)
    log = read_log(content[: min(cut, len(content))].split(b"\n"))
    assert sum(log.warnings.values()) <= 1
    if len(log.tasks):
        _, result, *_ = shares(log)
        total = result.local.sum() + result.message.sum() + result.crossing.sum()
        assert total == pytest.approx(1)


@pytest.mark.parametrize("codec", ["", *PACKERS])
def test_rolling_logs_of_every_codec_with_an_unfinished_last_file(tmp_path, codec):
    directory = tmp_path / "eventlog_v2_app-1"
    directory.mkdir()
    lines = skewed_job().lines
    pieces = [lines[:9], lines[9:15], lines[15:]]
    for number, piece in enumerate(pieces, start=1):
        content = b"".join(line + b"\n" for line in piece)
        packed = PACKERS[codec](content) if codec else content
        (directory / f"events_{number}_app-1{'.' + codec if codec else ''}").write_bytes(packed)
    (directory / f"events_10_app-1{'.' + codec if codec else ''}").write_bytes(b"(\xb5/\xfd")
    (directory / "appstatus_app-1.inprogress").touch()
    (found,) = find_logs(tmp_path)
    assert found.in_progress
    log = read_log(found.read_lines())
    assert (log.application, len(log.tasks), log.is_complete) == ("app-1", 8, True)


def test_a_cut_zstd_frame_gives_what_is_before_it(tmp_path):
    lines = skewed_job().lines
    first = zstandard.compress(b"".join(line + b"\n" for line in lines[:12]))
    second = zstandard.compress(b"".join(line + b"\n" for line in lines[12:]))
    path = tmp_path / "app-1.zstd.inprogress"
    path.write_bytes(first + second[: len(second) // 2])
    (found,) = find_logs(path)
    assert read_log(found.read_lines()).lines >= 12


def test_paths_that_hold_no_log_are_named(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        find_logs(tmp_path / "missing")
    with pytest.raises(BadInput, match="no event log"):
        find_logs(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("Executor ID", None), ("Launch Time", "x"), ("Launch Time", 10**30), ("Index", 10**30)],
)
def test_a_task_that_cannot_be_read_takes_no_row_of_another(field, value):
    """Its end tells all of it once more, and what is read of other tasks stays theirs."""
    lines = skewed_job().lines
    first = next(place for place, line in enumerate(lines) if b"TaskStart" in line)
    event = json.loads(lines[first])
    event["Task Info"][field] = value
    if value is None:
        del event["Task Info"][field]
    broken = read_log([*lines[:first], json.dumps(event).encode(), *lines[first + 1 :]])
    assert broken.warnings == {"events with missing or bad fields": 1}
    assert finishes(broken) == finishes(read_log(lines))


def finishes(log):
    """Task → from when to when it ran, and where."""
    launch, finish = log.tasks["launch"].tolist(), log.tasks["finish"].tolist()
    places = [log.tasks.executors[place] for place in log.tasks["executor"].tolist()]
    return dict(zip(log.tasks["task"].tolist(), zip(launch, finish, places, strict=True), strict=True))


@pytest.mark.parametrize("cores", [-5, 10**30, 1e308, None])
def test_cores_that_cannot_be_are_unknown(cores):
    known, told = b'"Total Cores":2', b'"Total Cores":' + json.dumps(cores).encode()
    log = read_log([line.replace(known, told) for line in skewed_job().lines])
    assert {one.cores for one in log.executors.values()} == {0}


def test_an_old_log_without_newer_fields_is_read():
    lines = [
        {"Event": "SparkListenerLogStart", "Spark Version": "2.1.0"},
        {"Event": "SparkListenerTaskEnd", "Stage ID": 0, "Stage Attempt ID": 0,
         "Task Info": {"Task ID": 0, "Launch Time": BASE, "Executor ID": "1", "Finish Time": BASE + 90},
         "Task Metrics": {"Executor Run Time": 50}},
    ]  # fmt: skip
    log = read_log([json.dumps(line).encode() for line in lines])
    assert (log.spark_version, len(log.tasks), log.start) == ("2.1.0", 1, BASE)
    assert shares(log)[1].length_us > 0


def test_the_chain_of_plan_nodes_goes_from_input_to_output():
    rdds = [
        {"RDD ID": 3, "Scope": '{"id":"2","name":"Exchange"}'},
        {"RDD ID": 1, "Scope": '{"id":"1","name":"Scan"}'},
        {"RDD ID": 2, "Scope": '{"id":"1","name":"Scan"}'},
        {"RDD ID": 4},
    ]
    assert name_chain(rdds) == "Scan > Exchange"


def test_retries_speculation_and_a_lost_executor_leave_a_whole_graph():
    log = LogBuilder().executor("1", 100).executor("2", 100)
    log.job(0, 1000, [0]).stage(0, 1001, 3)
    log.start(0, 0, "1", 1010).start(0, 1, "1", 1011).start(0, 2, "2", 1012)
    # the executor goes with both of its tasks, which report nothing; they run again elsewhere
    log.add("SparkListenerExecutorRemoved", **{"Executor ID": "1", "Timestamp": BASE + 2000})
    for task in (0, 1):
        log.end(0, task, "1", 1010 + task, 2000, reason="ExecutorLostFailure", metrics=False)
    log.executor("3", 2100)
    log.start(0, 3, "3", 2200).start(0, 4, "2", 2201)
    # the last one is slow: a copy is started, wins, and the other is killed
    log.start(0, 5, "3", 2600).end(0, 3, "3", 2200, 3000).end(0, 4, "2", 2201, 3100)
    log.end(0, 5, "3", 2600, 3200).end(0, 2, "2", 1012, 3210, reason="TaskKilled", run=2000)
    log.stage(0, 1001, 3, done=3200).job_end(0, 3220)
    names, result, graph, found = shares(read_log(log.application_end(3300).lines))
    assert result.local.sum() + result.message.sum() == pytest.approx(1)
    assert result.length_us == 3_300_000
    assert (result.instrumentation.uncaused_events, result.instrumentation.silent_spans) == (0, 0)
    assert found.warnings["tasks that failed"] == 2
    assert found.warnings["tasks that were killed"] == 1
    assert found.warnings["finished tasks without metrics"] == 2
    assert graph.repairs.overlapping_activities == 0
    assert any(worker.startswith("executor 2") for worker, _, _ in names)


def test_an_archive_is_told_apart_from_a_log(tmp_path):
    (tmp_path / "logs.zip").write_bytes(b"PK")
    with pytest.raises(
        BadInput, match=r"logs\.zip: is a zip archive; unpack it and name the event log inside"
    ):
        find_logs(tmp_path / "logs.zip")


def nested(names):
    """Metrics in which each name has another value, large enough to be milliseconds after division."""
    metrics: dict[str, object] = {}
    for number, (section, name) in enumerate(dict.fromkeys(names), start=1):
        place = metrics.setdefault(section, {}) if section else metrics
        place[name] = number * 3_000_000
    return metrics


def test_both_sources_fill_the_same_columns_with_the_same_values():
    logged = read_logged_metrics(nested(one.logged for one in TASK_METRICS))
    assert logged == read_live_metrics(nested(one.live for one in TASK_METRICS))
    assert set(logged) <= set(TASK_COLUMNS)
    assert len(set(logged.values())) == len(logged)


def test_nanoseconds_become_milliseconds_and_parts_add_up():
    read = {"Remote Bytes Read": 5, "Total Records Read": 2}
    metrics = {
        "Executor CPU Time": 12_999_999,
        "Shuffle Read Metrics": read,
        "Input Metrics": {"Records Read": 3},
    }
    found = read_logged_metrics(metrics)
    assert (found["cpu"], found["remote_bytes"], found["records_in"]) == (12, 5, 5)


def test_what_an_older_spark_does_not_tell_is_nothing():
    assert not any(read_logged_metrics({"Shuffle Read Metrics": None}).values())
