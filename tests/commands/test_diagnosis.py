"""`penstock diagnose`, from a path to what it prints and writes."""

from __future__ import annotations

import io
import json
import re
import threading

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from penstock.cli import perform
from penstock.commands.diagnosis import make_span, parse_memory, run_diagnosis
from penstock.diagnose.trace.events import to_table, write_trace
from penstock.errors import BadInput
from penstock.units.fields import parse_duration
from penstock.view.diagnosis_page import render_diagnosis_page
from penstock.view.perfetto import PATH_TRACK, render_perfetto
from penstock_lab.experiments.diagnosis_speed import TraceShape, generate_trace
from tests.diagnose.logs import BASE, skewed_job, streaming_job
from tests.diagnose.traces import figure_3_3, trace_of


def write(tmp_path, builder, name="app-1"):
    path = tmp_path / name
    path.write_bytes(b"\n".join(builder.lines))
    return path


def run(path, html=None, perfetto=None, follow=False, as_json=False, **span):
    """What the command prints on a wide terminal."""
    text = io.StringIO()
    made = {html: lambda found: render_diagnosis_page(found).encode(), perfetto: render_perfetto}
    outputs = {file: output for file, output in made.items() if file}
    console = Console(file=text, width=200)
    run_diagnosis(path, make_span(**span), console, outputs=outputs, follow=follow, as_json=as_json)
    return text.getvalue()


def run_json(capsys, path, **options):
    """The object that the command prints, which must be all that it prints."""
    assert run(path, as_json=True, **options) == ""
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_the_answer_comes_first_and_names_the_straggler(tmp_path):
    text = run(write(tmp_path, skewed_job()))
    answer = text.splitlines()[1]
    assert "of the critical path is running tasks" in answer
    assert "partition 7 on executor 2" in answer
    assert "6.1 times the median" in answer
    # the task of 5.97 s would take the median of 0.98 s
    assert "Worth up to 5 s ± 50 ms (59%)" in text


def test_following_an_empty_directory_waits_for_its_first_log(tmp_path):
    hidden = write(tmp_path, skewed_job(), ".app-1")
    later = threading.Timer(0.2, hidden.rename, (tmp_path / "app-1",))
    later.start()
    text = run(tmp_path, follow=True)
    later.join()
    assert text.startswith(f"Waiting for an event log in {tmp_path}")
    assert "partition 7 on executor 2" in text


def test_json_follows_the_contract(tmp_path, capsys):
    answer = run_json(capsys, write(tmp_path, skewed_job()), window_seconds=2.0)
    assert len(answer["windows"]) == 5
    for window in answer["windows"]:
        assert sum(window["activity"].values()) == pytest.approx(1)
        assert {"start_ms", "end_ms", "paths_log10", "worker", "operator", "communication"} <= set(window)
    assert answer["windows"][0]["start_ms"] == BASE
    assert answer["warnings"] == []


def test_a_part_of_the_time(tmp_path, capsys):
    options = {"start": (BASE + 2000) / 1000, "end": (BASE + 4000) / 1000}
    (window,) = run_json(capsys, write(tmp_path, skewed_job()), **options)["windows"]
    assert (window["start_ms"], window["end_ms"]) == (BASE + 2000, BASE + 4000)
    with pytest.raises(BadInput, match=r"app-1: nothing lies in this span: events are from 20\d\d-"):
        run(write(tmp_path, skewed_job()), start=(BASE + 90_000) / 1000)
    with pytest.raises(BadInput, match="--from must be before --to"):
        run(write(tmp_path, skewed_job()), start=5.0, end=4.0)


def test_many_logs_are_answered_together(tmp_path, capsys):
    write(tmp_path, skewed_job(), "app-1")
    write(tmp_path, skewed_job(), "app-2")
    answer = run_json(capsys, tmp_path)
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


def test_the_window_that_a_refusal_names_can_be_analysed(tmp_path, capsys):
    path = tmp_path / "trace.parquet"
    write_trace(generate_trace(TraceShape(120_000, workers=6)), path)
    with pytest.raises(BadInput, match=r"trace\.parquet: a window of 4 s holds 119") as refused:
        run(path, memory=6_000_000)
    named = re.search("--window ([0-9a-z]+) fits", str(refused.value))[1]
    answer = run_json(capsys, path, memory=6_000_000, window_seconds=parse_duration(named))
    assert len(answer["windows"]) == 18
    assert all(sum(window["activity"].values()) == pytest.approx(1) for window in answer["windows"])
    with pytest.raises(BadInput, match="with what surrounds it"):
        run(path, memory=6_000_000, window_seconds=3.0)


def test_a_trace_of_another_engine_is_diagnosed(tmp_path, capsys):
    path = tmp_path / "trace.parquet"
    pq.write_table(to_table(trace_of(figure_3_3(), scale=1_000_000)), path)
    answer = run_json(capsys, path)
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


def test_one_log_that_cannot_be_read_does_not_hide_the_others(tmp_path, capsys):
    write(tmp_path, skewed_job())
    (tmp_path / "zz-notes.txt").write_text("nothing of Spark")
    answer = run_json(capsys, tmp_path)
    assert len(answer["windows"]) == 1
    assert any("zz-notes.txt: is not a Spark event log" in warning for warning in answer["warnings"])
    (tmp_path / "app-1").unlink()
    with pytest.raises(BadInput, match="zz-notes"):
        run(tmp_path)


def test_many_applications_begin_with_a_list_of_answers(tmp_path):
    write(tmp_path, skewed_job(), "app-1")
    write(tmp_path, skewed_job(), "app-2")
    text = run(tmp_path)
    assert text.splitlines()[0].strip() == "2 applications"
    assert text.count("partition 7 on executor 2") == 6


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "app-1"
    path.write_bytes(b"\n".join(skewed_job().lines))
    return path


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["/no/such/log"], "/no/such/log"),
        ([".", "--window", "soon"], "--window"),
        ([".", "--window", "0.0000001s"], "--window"),
        ([".", "--from", "yesterday"], "--from"),
        ([".", "--from", "nan"], "--from"),
        ([".", "--to", "noon"], "--to"),
        ([".", "--to", "inf"], "--to"),
        ([".", "--from", "5", "--to", "4"], "--from"),
        ([".", "--memory", "plenty"], "--memory"),
        ([".", "--memory", "0GB"], "--memory"),
        ([".", "--memory", "9" * 400 + "GB"], "--memory"),
        ([".", "--host-cores", "0"], "--host-cores"),
    ],
)
def test_bad_usage_is_one_line_that_names_the_place(arguments, named, capsys):
    assert perform(["diagnose", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert named in complaint
    assert complaint.count("\n") == 1


def test_a_log_becomes_json_a_page_and_a_trace(log, tmp_path, capsys):
    page, trace = tmp_path / "report.html", tmp_path / "trace.json"
    options = [
        "--window",
        "2s",
        "--from",
        str(BASE / 1000 + 1),
        "--html",
        str(page),
        "--perfetto",
        str(trace),
        "--json",
    ]
    assert perform(["diagnose", str(log), *options]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [window["start_ms"] - BASE for window in answer["windows"]] == [1000, 3000, 5000, 7000]
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]


def test_a_run_is_compared_with_another(log, tmp_path, capsys):
    other = tmp_path / "other" / "app-0"
    other.parent.mkdir()
    other.write_bytes(b"\n".join(skewed_job().lines).replace(b'"app-1"', b'"app-0"'))
    assert perform(["diagnose", str(log), "--against", str(other)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("against app-0: It took 8.5 s instead of 8.5 s: nothing on the critical path")
    assert perform(["diagnose", str(log), "--against", str(other), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["comparison"]["other"] == "app-0" and len(found["windows"]) == 1
    (other.parent / "app-2").write_bytes(other.read_bytes())
    assert perform(["diagnose", str(log), "--against", str(other.parent)]) == 2
    assert "compares one run with one other" in capsys.readouterr().err


def test_names_are_told_as_they_are(tmp_path, capsys):
    """Not as rich would show them: :100: as a picture, and [/b] as markup that is closed."""
    lines = b"\n".join(skewed_job().lines).replace(b'"demo"', b'"a:100:b [/b]"')
    (tmp_path / "app-1").write_bytes(lines)
    assert perform(["diagnose", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["name"] == "a:100:b [/b]"
    assert perform(["diagnose", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("a:100:b [/b] app-1")


def test_a_file_whose_name_is_no_utf8_is_told_of(log, capsys):
    log.with_name("junk-\udcff").write_text("no event log")
    assert perform(["diagnose", str(log.parent), "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out.splitlines()[-1])["warnings"]
    assert "junk-\\udcff: is not a Spark event log" in warning


def test_what_does_not_fit_into_the_memory_allowed_is_refused(log, capsys):
    assert perform(["diagnose", str(log), "--memory", "10kB"]) == 2
    assert "app-1: a window of 8.5 s holds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("512", 512), ("512MB", 512_000_000), ("1.5 GiB", 3 << 29), ("2k", 2000), (None, None)]
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_memory(text) == size


def test_a_window_shows_in_plain_output(tmp_path):
    """One line for each window, with what it waited for; without a window there is no such table."""
    path = write(tmp_path, skewed_job())
    assert "windows" not in run(path)
    text = run(path, window_seconds=2.0)
    assert "5 windows" in text
    rows = text[text.index("5 windows") :].splitlines()[4:9]
    assert "the program on the driver" in rows[0]
    assert all("running tasks" in row and "executor 2 slot" in row for row in rows[2:4])


def test_of_very_many_windows_the_first_are_shown(tmp_path):
    text = run(write(tmp_path, skewed_job()), window_seconds=0.1)
    assert "85 windows" in text
    assert "and 25 more; --html and --json have all of them" in text


def test_streaming_queries_are_told_batch_by_batch(tmp_path, capsys):
    slow = {"latestOffset": 2600, "triggerExecution": 4500}
    path = write(tmp_path, streaming_job(30, {12: slow}))
    text = run(path)
    assert "query counts: 30 batches, one every 4 s, median 2 s; 1 slow" in text
    assert "batch 12 was slow: asking the source took 2.6 s, usually 0.1 s; longer than the trigger" in text
    assert "asking the source" in text[text.index("slow and newest batches") :]
    assert "slow and newest" not in run(write(tmp_path, skewed_job(), "app-2"))
    (query,) = run_json(capsys, path)["streaming"]
    assert [one["number"] for one in query["batches"] if one["slow_because"]] == [12]


def test_idle_cores_are_told_in_money(tmp_path, capsys):
    path = write(tmp_path, skewed_job())
    assert "at 0.5 a core-hour" in run(path, price_per_core_hour=0.5)
    found = run_json(capsys, path, price_per_core_hour=0.5)["slots"]
    assert found["idle_cost"] == pytest.approx(found["idle_core_seconds"] / 3600 * 0.5)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="--price-per-core-hour must be 0 or more"):
            make_span(price_per_core_hour=wrong)
