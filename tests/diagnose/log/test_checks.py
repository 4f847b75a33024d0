"""What does not fit the rest of a log: times of other years, stages without their tasks, old versions."""

from __future__ import annotations

import json

import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.follow import FollowedLog
from penstock.diagnose.log.checks import STRAY_GAP_MS
from penstock.diagnose.log.files import find_logs
from penstock.diagnose.log.reader import read_application, read_log
from penstock.diagnose.path.spans import Span
from penstock.errors import BadInput
from tests.diagnose.logs import BASE, LogBuilder, skewed_job, streaming_job

YEARS = 5 * 365 * 86_400_000


def shift(line, by):
    """The line with all of its times moved."""
    event = json.loads(line)
    for place in (event, event.get("Task Info", {}), event.get("Stage Info", {})):
        for name in ("Timestamp", "Launch Time", "Finish Time", "Submission Time", "Completion Time", "time"):
            if name in place:
                place[name] += by
    return json.dumps(event).encode()


@pytest.mark.parametrize("by", [YEARS, -YEARS])
@pytest.mark.parametrize(
    "kind", ["TaskEnd", "TaskStart", "StageCompleted", "JobEnd", "JobStart", "ExecutorAdded"]
)
def test_one_event_of_another_year_is_told_and_left_out(kind, by):
    lines = skewed_job().lines
    place = max(place for place, line in enumerate(lines) if kind.encode() in line)
    log = read_log([*lines[:place], shift(lines[place], by), *lines[place + 1 :]])
    assert BASE <= log.start <= log.end <= BASE + 8500
    (warning,) = [one for one in log.warnings if "years" in one or "days" in one]
    assert log.warnings[warning] == 1
    found = diagnose_log(log, Span())
    assert sum(found.whole.activity.values()) == pytest.approx(1)
    assert any("left out" in one for one in found.warnings)


def test_an_end_of_another_year_does_not_stretch_the_span():
    lines = skewed_job().lines
    log = read_log([*lines[:-1], shift(lines[-1], YEARS)])
    assert (log.end, log.is_complete, sum(log.warnings.values())) == (BASE + 8010, True, 1)


def test_a_start_of_another_year_does_not_stretch_the_span():
    lines = skewed_job().lines
    log = read_log([lines[0], shift(lines[1], -YEARS), *lines[2:]])
    assert log.start == BASE + 100


def test_a_long_pause_is_not_stray():
    log = LogBuilder().executor("1", 100)
    for job, at in enumerate((1000, STRAY_GAP_MS // 2)):
        log.job(job, at, [job]).stage(job, at + 10, 1).start(job, job, "1", at + 20)
        log.end(job, job, "1", at + 20, at + 900).stage(job, at + 10, 1, done=at + 905).job_end(job, at + 910)
    read = read_log(log.application_end(STRAY_GAP_MS // 2 + 5000).lines)
    assert (read.end - BASE, read.warnings) == (STRAY_GAP_MS // 2 + 5000, {})


def test_a_stray_batch_is_left_out():
    lines = streaming_job(6).lines
    place = max(place for place, line in enumerate(lines) if b"QueryProgress" in line)
    log = read_log([*lines[:place], lines[place].replace(b"2023-11", b"2033-11"), *lines[place + 1 :]])
    assert len(log.batches) == 5
    assert log.end == BASE + 25_000


def test_a_followed_log_does_not_cut_years_into_windows():
    lines = skewed_job().lines
    place = max(place for place, line in enumerate(lines) if b"TaskEnd" in line)
    followed = FollowedLog(1_000_000)
    _, windows = followed.take_lines([*lines[:place], shift(lines[place], YEARS)])
    assert len(windows) < 20


def test_stages_without_their_tasks_are_named():
    lines = [
        line for line in skewed_job().lines if not (b"SparkListenerTask" in line and b'"Stage ID":1,' in line)
    ]
    log = read_log(lines)
    (warning,) = log.warnings
    assert warning == "stages whose task events are missing (stage 1 has 0 of 4)"
    found = diagnose_log(log, Span())
    assert f"{warning}: 1" in found.warnings
    assert sum(found.whole.activity.values()) == pytest.approx(1)


def test_a_part_of_the_tasks_is_missing():
    lines = skewed_job().lines
    gone = [line for line in lines if not (b"SparkListenerTask" in line and b'"Task ID":2,' in line)]
    assert read_log(gone).warnings == {"stages whose task events are missing (stage 0 has 3 of 4)": 1}
    assert read_log(lines).warnings == {}


def test_a_stage_that_failed_need_not_have_run_all_of_its_tasks():
    log = LogBuilder().executor("1", 100).job(0, 1000, [0]).stage(0, 1010, 8).start(0, 0, "1", 1020)
    log.end(0, 0, "1", 1020, 1500, reason="ExceptionFailure").stage(0, 1010, 8, done=1600).job_end(0, 1700)
    assert not any("missing" in one for one in read_log(log.application_end(1800).lines).warnings)


def test_a_cancelled_stage_need_not_have_run_any_task():
    log = LogBuilder().executor("1", 100).job(0, 1000, [0]).stage(0, 1010, 8).stage(0, 1010, 8, done=1600)
    event = json.loads(log.lines[-1])
    event["Stage Info"]["Failure Reason"] = "Job 0 cancelled"
    log.lines[-1] = json.dumps(event).encode()
    assert not any("missing" in one for one in read_log(log.application_end(1800).lines).warnings)


@pytest.mark.parametrize("version", ["1.6.3", "2.0.2", "2.0.0.cloudera1", "0.9"])
def test_logs_of_an_old_spark_are_refused_in_one_sentence(tmp_path, version):
    path = tmp_path / "app-1"
    path.write_bytes(b"\n".join(LogBuilder(version).executor("1", 5).application_end(100).lines))
    with pytest.raises(BadInput) as refused:
        read_application(find_logs(path)[0])
    told = f"{path}: was written by Spark {version}; logs of Spark 2.1 and later can be read"
    assert str(refused.value) == told


@pytest.mark.parametrize("version", ["2.1.0", "2.4.8", "3.5.1-amzn-0", "10.0", "4.3.0", "unknown", ""])
def test_logs_of_a_newer_or_unknown_spark_are_read(tmp_path, version):
    path = tmp_path / "app-1"
    path.write_bytes(b"\n".join([*LogBuilder(version).lines[:1], *skewed_job().lines[1:]]))
    assert read_application(find_logs(path)[0]).spark_version == version
