"""The live view: what it shows, and that odd names and missing figures do not spoil it."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console

from penstock.view import figures
from penstock.view.run_terminal import format_run_line, render_run
from tests.view import made_up


def text(status: dict[str, Any], width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render_run(status))
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_the_view_says_what_a_query_waits_for() -> None:
    seen = made_up.status()
    seen["queries"][0]["critical"] = {
        "answer": "71% of the critical path is the run of tasks.",
        "activity": {"name": "processing", "share": 0.7},
        "worker": {"name": "executor 1 slot 0", "share": 0.4},
    }
    shown = " ".join(text(seen, width=200).split())
    assert "critical path: 71% of the critical path is the run of tasks." in shown
    assert "(activity processing 70%, worker executor 1 slot 0 40%)" in shown
    (query,) = made_up.status()["queries"]
    assert "critical path" not in text(
        made_up.status(queries=[{**query, "critical": {}, "critical_windows": []}])
    )


def test_the_view_shows_the_largest_causes_of_the_last_windows() -> None:
    shown = text(made_up.status(), width=200)
    (line,) = (one for one in shown.splitlines() if "last batches" in one)
    assert "run of tasks ▄▄▄▄▆▆▆▆▆▆▆▆ 68%" in line and "garbage" not in line
    assert line.rstrip().endswith("8%")


def test_the_view_shows_rates_backlog_batch_time_slots_and_reasons() -> None:
    shown = text(made_up.status())
    for part in (
        "518/s",
        "521/s",
        "4.1 s / 10 s",
        "slots held 4",
        "slots needed 4",
        "scale out 2 → 5",
        "counts needs 10 slots",
        "expected: batch time 7.6 s",
        "done in 6.2 s",
        "acting",
    ):
        assert part in shown


def test_newest_decision_comes_first_and_old_ones_are_left_out() -> None:
    many = [made_up.decision(index, "rejected", f"reason {index}") for index in range(30)]
    shown = text(made_up.status(decisions=many))
    assert shown.index("reason 29") < shown.index("reason 28")
    assert "reason 10" not in shown


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    queries = [{**made_up.status()["queries"][0], "name": "[red]q[/red]"}]
    shown = text(made_up.status(name="[bold]x", queries=queries))
    assert "[red]q[/red]" in shown
    assert "[bold]x" in shown


def test_an_application_that_has_just_started() -> None:
    shown = text(made_up.status(recent=[], decisions=[], queries=[], slots=None, slots_needed=None))
    assert "no streaming query has run a batch yet" in shown
    assert "no decision yet" in shown


def test_unknown_figures_are_dashes() -> None:
    query = dict.fromkeys(made_up.status()["queries"][0], None) | {"name": "q"}
    recent = [{"at": 1.0, "slots_held": None}, {"at": 2.0, "offered_per_second": math.nan}]
    assert "–" in text(made_up.status(queries=[query], recent=recent))


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_any_width_will_do(width: int) -> None:
    assert all(len(row) <= width for row in text(made_up.status(), width).splitlines())


def test_an_action_under_way_a_pause_a_warning_and_an_error_are_said() -> None:
    action = {"since": made_up.status()["now"] - 3, "from": 2, "to": 5, "reason": "grow"}
    shown = text(
        made_up.status(
            action_in_flight=action,
            paused=True,
            warnings=["no offered rate"],
            advice=["more partitions"],
            error="disk full",
        )
    )
    for part in (
        "changing 2 → 5 executors, for 3 s",
        "paused",
        "! no offered rate",
        "→ more partitions",
        "disk full",
    ):
        assert part in shown


def test_one_line_for_output_that_is_not_a_terminal() -> None:
    said = format_run_line(made_up.status())
    assert "\n" not in said
    for part in ("counts 518/s offered", "slots 4 held 4 needed", "hold: 4 slots are needed"):
        assert part in said
    assert "no decision yet" in format_run_line(made_up.status(last_decision=None, queries=[]))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.45, "450 ms"), (7.12, "7.1 s"), (10.0, "10 s"), (720.0, "12 min"), (12600.0, "3.5 h")],
)
def test_spans_of_time(value: float | None, shown: str) -> None:
    assert figures.seconds(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0.44, "0.4/s"), (0.0, "0/s"), (12600.0, "12,600/s")])
def test_rates(value: float, shown: str) -> None:
    assert figures.rate(value) == shown


def test_sparklines_keep_gaps_and_the_newest_values() -> None:
    assert figures.sparkline([9, 0, None, 7], 3) == "▁ █"
    assert figures.sparkline([1], 4) == "   █"
    assert figures.sparkline([0, 0], 2) == "▁▁"
    assert figures.sparkline([1.0], 1, top=2.0) == "▅"
