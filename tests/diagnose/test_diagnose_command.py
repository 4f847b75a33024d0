"""`penstock diagnose` keeps to the command contract."""

from __future__ import annotations

import json

import pytest

from penstock.cli import perform
from penstock.commands.diagnosis import size_in_bytes
from tests.diagnose.logs import BASE, skewed_job


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
    assert size_in_bytes(text) == size
