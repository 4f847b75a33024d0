"""`penstock report`: one page to forward, from the journal alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.decide.verdict import Accepted, NothingToDo
from penstock.errors import ActionFailed, Unsupported
from penstock.journal.former_runs import KIND, identify_process
from penstock.journal.store import Journal, open_journal
from penstock.journal.terms import Terms, remember_terms
from penstock.view.pdf import print_pdf
from penstock.view.report_page import MOST_POINTS, list_notes, thin_out
from tests.commands.command_line import Captured, complaint, last_json
from tests.fakes import a_query, a_scale, a_window, an_outcome
from tests.journal.test_report import action, seen

SPIKY = "<script>alert(1)</script>"


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Path]:
    """The journal of an hour of 1, then 3 executors of two cores, ended a moment ago."""
    path = tmp_path / "journal.db"
    with closing(open_journal(path)) as journal:
        write_run(journal)
    yield path


def write_run(journal: Journal) -> None:
    begun = time.time() - 3600
    journal.remember(begun, "words", KIND, "app-1", identify_process())
    remember_terms(journal, begun, "words", "app-1", Terms(executor_memory_bytes=1e9))
    for number in range(36):
        now = begun + 100.0 * (number + 1)
        query = a_query(now - 100.0, name=SPIKY, backlog=0.0)
        executors = 1 if number < 18 else 3
        journal.observed(now, a_window(now, executors, seconds=100.0, queries=(query,)))
    grow = replace(a_scale(3), reason=f"too slow {SPIKY}")
    decision = journal.decided(begun + 1800.0, "app-1", grow, Accepted(grow), "ds2")
    number = journal.intend(begun + 1800.0, "app-1", decision, grow, {"executors": 1})
    journal.ended(begun + 1805.0, number, an_outcome(3))
    journal.decided(begun + 1900.0, "app-1", grow, NothingToDo("right"), "ds2")


def test_a_report_in_all_forms(recorded: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "settings.yaml").write_text("price_per_core_hour: 0.5\nprice_per_gb_hour: 0.25\n")
    page = tmp_path / "report.html"
    options = ["--journal", str(recorded), "--config", str(tmp_path / "settings.yaml")]
    assert perform(["report", "words", "--since", "2h", "--html", str(page), "--json", *options]) == 0
    told = last_json(capsys)
    # half an hour of 2 cores and 1 GB, half an hour of 6 cores and 3 GB; the peak for an hour
    assert told["holding"]["core_hours"] == pytest.approx(4.0)
    assert told["holding"]["peak_core_hours"] == pytest.approx(6.0)
    assert told["cost"] == {"held": pytest.approx(2.5), "peak": pytest.approx(3.75), "with_memory": True}
    assert told["queries"][0]["kept_up_share"] == pytest.approx(1.0)
    assert told["decisions"] == {"accepted": 1, "nothing-to-do": 1}
    assert [(one["before"], one["planned"]) for one in told["actions"]] == [
        ({"executors": 1}, {"executors": 3})
    ]
    text = page.read_text()
    assert SPIKY not in text and "alert(1)" in text and "too slow" in text and "at the peak size" in text
    assert "http://" not in text.partition("</head>")[2].partition("<script>")[0], "nothing from elsewhere"
    assert perform(["report", "app-1", *options]) == 0
    shown = capsys.readouterr().out
    assert "what to change in the job" in shown and "core-hours" in shown


def test_what_is_not_there_is_said(recorded: Path, tmp_path: Path, capsys: Captured) -> None:
    options = ["--journal", str(recorded)]
    assert perform(["report", "wrods", *options]) == 2
    assert "the journal has nothing of 'wrods' since then; it knows words" in complaint(capsys)
    assert perform(["report", "words", "--since", "0s", *options]) == 2
    assert "--since must be above zero" in complaint(capsys)
    assert perform(["report", "words", "--since", "often", *options]) == 2
    assert "--since: 'often' is not a duration" in complaint(capsys)
    assert perform(["report", "words", "--journal", str(tmp_path / "none.db")]) == 2
    assert "no such file" in complaint(capsys)


def test_charts_of_long_spans_keep_the_worst_moments() -> None:
    windows = [seen(10.0 * at, 10.0 * at + 10, 2, a_summary(at)) for at in range(10 * MOST_POINTS)]
    points = thin_out(windows)
    assert len(points) == MOST_POINTS and max(point["backlog_records"] for point in points) == 777.0
    assert thin_out([]) == []


def a_summary(at: int):
    return replace(seen(0.0, 1.0, 1).queries[0], backlog_records=777.0 if at == 1234 else 0.0)


def test_a_span_that_outlasts_the_observations_says_what_to_set() -> None:
    from penstock.journal.report import make_report

    begun = 7 * 86400.0 - 3600.0
    windows = [seen(begun + 10.0 * at, begun + 10.0 * at + 10.0, 2) for at in range(360)]
    notes = list_notes(make_report("words", 0.0, 7 * 86400.0, windows, [], [action(None)], {}))
    assert "retained_observations to 61,000" in notes[0], "60,480 windows of 10 s in a week"
    assert "price_per_core_hour" in notes[1] and "memory" in notes[2]
    assert list_notes(make_report("words", 0.0, 1.0, [], [], [action(None)], {})) == [
        "Nothing was observed in this span."
    ]


def test_a_page_is_printed_by_chromium(tmp_path: Path) -> None:
    made = print_pdf("<!doctype html><title>x</title><p>words", tmp_path / "deep" / "report.pdf")
    assert made.read_bytes().startswith(b"%PDF-")
    with pytest.raises(Unsupported, match="no Chromium was found"):
        print_pdf("<p>words", tmp_path / "report.pdf", find=lambda name: None)
    with pytest.raises(ActionFailed, match="could not print the page: no reason"):
        print_pdf("<p>words", tmp_path / "report.pdf", find=lambda name: "/bin/false")
    with pytest.raises(ActionFailed, match="printed no PDF"):
        print_pdf("<p>words", tmp_path / "report.pdf", find=lambda name: "/bin/true")
