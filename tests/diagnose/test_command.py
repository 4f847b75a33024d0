"""The command, from a path to what it prints and writes."""

from __future__ import annotations

import io
import json
import re
import threading
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from penstock.diagnose.answer import Finding, find_straggler, plain_answer
from penstock.diagnose.command import diagnose
from penstock.diagnose.density import Span
from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.event_log import read_log
from penstock.diagnose.generated import TraceShape, generated_trace
from penstock.diagnose.memory import available_bytes
from penstock.diagnose.perfetto import PATH_TRACK, perfetto_file
from penstock.diagnose.trace import to_table
from penstock.diagnose.trace_files import write_trace
from penstock.durations import parse_duration
from penstock.errors import BadInput
from penstock.view.diagnosis_page import diagnosis_page
from tests.diagnose.logs import BASE, LogBuilder, skewed_job
from tests.diagnose.test_follow import many_jobs
from tests.diagnose.test_participation import figure_3_3
from tests.diagnose.traces import trace_of


def write(tmp_path, builder, name="app-1"):
    path = tmp_path / name
    path.write_bytes(b"\n".join(builder.lines))
    return path


def run(path, html=None, perfetto=None, **options):
    text = io.StringIO()
    made = {html: lambda found: diagnosis_page(found).encode(), perfetto: perfetto_file}
    options["outputs"] = {file: output for file, output in made.items() if file}
    code = diagnose(path, console=Console(file=text, width=200), **options)
    return code, text.getvalue()


def test_the_answer_comes_first_and_names_the_straggler(tmp_path):
    code, text = run(write(tmp_path, skewed_job()))
    assert code == 0
    answer = text.splitlines()[1]
    assert "of the critical path is the run of tasks" in answer
    assert "partition 7 on executor 2" in answer
    assert "6.1 times the median" in answer
    assert "Worth up to 4.5 s" in text


def test_following_an_empty_directory_waits_for_its_first_log(tmp_path):
    hidden = write(tmp_path, skewed_job(), ".app-1")
    later = threading.Timer(0.2, hidden.rename, (tmp_path / "app-1",))
    later.start()
    code, text = run(tmp_path, follow=True)
    later.join()
    assert code == 0
    assert text.startswith(f"Waiting for an event log in {tmp_path}")
    assert "partition 7 on executor 2" in text


def test_json_follows_the_contract(tmp_path):
    code, text = run(write(tmp_path, skewed_job()), window_seconds=2.0, as_json=True)
    answer = json.loads(text.splitlines()[-1])
    assert code == 0
    assert len(text.splitlines()) == 1
    assert len(answer["windows"]) == 5
    for window in answer["windows"]:
        assert sum(window["activity"].values()) == pytest.approx(1)
        assert {"start_ms", "end_ms", "paths_log10", "worker", "operator", "communication"} <= set(window)
    assert answer["windows"][0]["start_ms"] == BASE
    assert answer["warnings"] == []


def test_a_part_of_the_time(tmp_path):
    options = {"start": (BASE + 2000) / 1000, "end": (BASE + 4000) / 1000, "as_json": True}
    _, text = run(write(tmp_path, skewed_job()), **options)
    (window,) = json.loads(text)["windows"]
    assert (window["start_ms"], window["end_ms"]) == (BASE + 2000, BASE + 4000)
    with pytest.raises(BadInput, match=r"app-1: nothing lies in this span: events are from 20\d\d-"):
        run(write(tmp_path, skewed_job()), start=(BASE + 90_000) / 1000)
    with pytest.raises(BadInput, match="--from must be before --to"):
        run(write(tmp_path, skewed_job()), start=5.0, end=4.0)


def test_many_logs_are_answered_together(tmp_path):
    write(tmp_path, skewed_job(), "app-1")
    write(tmp_path, skewed_job(), "app-2")
    _, text = run(tmp_path, as_json=True)
    answer = json.loads(text)
    assert len(answer["applications"]) == len(answer["windows"]) == 2


def test_html_is_self_contained_and_perfetto_marks_the_critical_path(tmp_path):
    html, perfetto = tmp_path / "report.html", tmp_path / "trace.json"
    run(write(tmp_path, skewed_job()), html=html, perfetto=perfetto, window_seconds=1.0)
    page = html.read_text()
    assert "partition 7 on executor 2" in page
    assert "<script src" not in page
    events = json.loads(perfetto.read_text())["traceEvents"]
    critical = [event for event in events if event.get("cat") == "critical"]
    assert critical
    assert all(event["args"]["critical participation"] > 0 for event in critical)
    assert all(event["name"].endswith("(critical)") for event in critical)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert "driver" in tracks.values()
    drawn = [event for event in events if event.get("cat") == "critical path"]
    assert {tracks[event["tid"]] for event in drawn} == {PATH_TRACK}
    # the drawn path has no hole and is as long as the application
    assert sum(event["dur"] for event in drawn) == 8_500_000
    assert any(event["name"] == "run, executor 2 slot 1" for event in drawn)


def test_every_application_is_a_process_of_its_own_in_perfetto(tmp_path):
    perfetto = tmp_path / "trace.json"
    logs = tmp_path / "logs"
    logs.mkdir()
    write(logs, skewed_job(), "app-1")
    write(logs, skewed_job(), "app-2")
    run(logs, perfetto=perfetto)
    events = json.loads(perfetto.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {1, 2}
    arrows = [event["id"] for event in events if event["ph"] == "s"]
    assert len(set(arrows)) == len(arrows) > 0
    assert sorted(arrows) == sorted(event["id"] for event in events if event["ph"] == "f")


def test_the_window_that_a_refusal_names_can_be_analysed(tmp_path):
    path = tmp_path / "trace.parquet"
    write_trace(generated_trace(TraceShape(120_000, workers=6)), path)
    with pytest.raises(BadInput, match=r"trace\.parquet: a window of 4 s holds 119") as refused:
        run(path, memory=6_000_000)
    named = re.search("--window ([0-9a-z]+) fits", str(refused.value))[1]
    _, text = run(path, memory=6_000_000, window_seconds=parse_duration(named), as_json=True)
    answer = json.loads(text)
    assert len(answer["windows"]) == 18
    assert all(sum(window["activity"].values()) == pytest.approx(1) for window in answer["windows"])
    with pytest.raises(BadInput, match="with what surrounds it"):
        run(path, memory=6_000_000, window_seconds=3.0)


def test_a_trace_of_another_engine_is_diagnosed(tmp_path):
    path = tmp_path / "trace.parquet"
    pq.write_table(to_table(trace_of(figure_3_3(), scale=1_000_000)), path)
    _, text = run(path, as_json=True)
    answer = json.loads(text)
    assert max(answer["whole"]["worker"], key=answer["whole"]["worker"].get) == "W2"
    assert answer["windows"][0]["paths_log10"] == pytest.approx(0.954, abs=0.001)


@pytest.mark.parametrize("content", [b"", b"hello\n", b'{"a": 1}\n'])
def test_what_is_no_log_is_refused_with_its_name(tmp_path, content):
    path = tmp_path / "other.txt"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="other"):
        run(path)


def test_a_window_must_have_a_length(tmp_path):
    with pytest.raises(BadInput, match="--window"):
        run(write(tmp_path, skewed_job()), window_seconds=0)


def test_memory_is_what_the_kernel_and_the_container_leave(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\n")
    assert available_bytes(meminfo, tmp_path) == 4000 * 1024
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert available_bytes(meminfo, tmp_path) == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(meminfo, tmp_path) == 4000 * 1024
    assert available_bytes(tmp_path / "missing", tmp_path) > 0


def test_one_log_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    write(tmp_path, skewed_job())
    (tmp_path / "zz-notes.txt").write_text("nothing of Spark")
    code, text = run(tmp_path, as_json=True)
    answer = json.loads(text.splitlines()[-1])
    assert code == 0
    assert len(answer["windows"]) == 1
    assert any("zz-notes.txt: is not a Spark event log" in warning for warning in answer["warnings"])
    (tmp_path / "app-1").unlink()
    with pytest.raises(BadInput, match="zz-notes"):
        run(tmp_path)


def test_stages_that_do_the_same_again_and_again_are_told_together():
    found = diagnose_log(read_log(many_jobs(12).lines), Span())
    assert (
        found.answer
        == "73% of the critical path is the run of tasks. Most of it (73%) is Scan, in 12 stages."
    )
    assert found.what_if.jobs == 12
    same = next(item for item in found.what_if.forecasts if item.slots == found.what_if.slots)
    assert same.median_job_seconds == pytest.approx(found.what_if.measured_job_seconds, rel=0.05)


def test_many_applications_begin_with_a_list_of_answers(tmp_path):
    write(tmp_path, skewed_job(), "app-1")
    write(tmp_path, skewed_job(), "app-2")
    _, text = run(tmp_path)
    assert text.splitlines()[0].strip() == "2 applications"
    assert text.count("partition 7 on executor 2") == 6


def test_a_driver_bound_application_is_told_that_executors_do_not_help():
    log = LogBuilder().executor("1", 100)
    log.job(0, 1000, [0]).stage(0, 1005, 1).start(0, 0, "1", 1010).end(0, 0, "1", 1010, 1400).job_end(0, 1410)
    found = diagnose_log(read_log(log.application_end(9000).lines), Span())
    assert "the program on the driver" in found.answer
    assert "more executors would not help" in found.answer
    # From 0.1 s, when the executor is there, to the job at 1 s, and from its end at 1.41 s to 9 s.
    assert found.findings[0].gain_seconds == pytest.approx(0.9 + 7.59, abs=0.02)


def test_behind_a_long_start_the_next_cause_is_told():
    found = [Finding("start-up", 0.6, "60% start.", ""), Finding("run", 0.2, "20% run.", "")]
    assert plain_answer(found) == "60% start. Behind it, 20% run."
    assert plain_answer([found[0], replace(found[1], share=0.1)]).endswith("more executors would not help.")


def test_an_operator_with_more_tasks_than_slots_wants_executors():
    log = LogBuilder().executor("1", 100, cores=1).job(0, 200, [0]).stage(0, 205, 4)
    for task in range(4):
        at = 210 + 1000 * task
        log.start(0, task, "1", at).end(0, task, "1", at, at + 990)
    read = read_log(log.job_end(0, 4300).application_end(4400).lines)
    found = diagnose_log(read, Span())
    assert "4 tasks share 1 slots" in found.findings[0].advice
    assert find_straggler(read, "stage 0: Scan") is None


def test_a_slow_shuffle_names_the_fetch_and_the_channel():
    log = LogBuilder().executor("1", 100, cores=1).executor("2", 100, cores=1)
    log.job(0, 200, [0, 1]).stage(0, 205, 1).start(0, 0, "1", 210)
    log.end(0, 0, "1", 210, 600, run=380, written=10_000).stage(0, 205, 1, done=600)
    log.stage(1, 605, 1, parents=[0], scope="Exchange").start(1, 1, "2", 610)
    log.end(1, 1, "2", 610, 5000, run=4300, fetch=4000, remote=10_000).job_end(0, 5010)
    found = diagnose_log(read_log(log.application_end(5100).lines), Span())
    assert found.findings[0].cause == "fetch"
    assert found.whole.communication[0][:2] == ("executor 1 shuffle", "executor 2 slot 0")
    assert found.findings[0].gain_seconds == pytest.approx(4.0, abs=0.1)


def test_failed_and_killed_tasks_are_told():
    log = LogBuilder().executor("1", 100).job(0, 200, [0]).stage(0, 205, 2)
    log.start(0, 0, "1", 210).end(0, 0, "1", 210, 600, reason="ExceptionFailure")
    log.start(0, 1, "1", 610).end(0, 1, "1", 610, 900, reason="TaskKilled").job_end(0, 905)
    found = diagnose_log(read_log(log.application_end(1000).lines), Span())
    assert found.warnings == ["1 tasks that failed", "1 tasks that were killed"]


def test_a_stage_that_waits_for_slots_is_not_blamed_on_its_longest_task():
    log = LogBuilder().executor("1", 100, cores=2).job(0, 1000, [0]).stage(0, 1001, 12)
    for task in range(12):
        # the first task takes 2.5 times as long as the others, which are done long after it
        launch, length = (1010, 1000) if task == 0 else (1010 + 400 * (task - 1), 400)
        log.start(0, task, "1", launch)
        log.end(0, task, "1", launch, launch + length, run=length - 5)
    log.stage(0, 1001, 12, done=5410).job_end(0, 5420)
    read = read_log(log.application_end(5500).lines)
    found = diagnose_log(read, Span())
    assert find_straggler(read, "stage 0: Scan") is None
    assert found.findings[0].advice == "Its 12 tasks share 2 slots: more executors would shorten it."
