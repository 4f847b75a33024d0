"""The demo's load and summary; the run itself is seen with `make demo`."""

import io

import pytest
from rich.console import Console

from penstock.settings.model import load_settings
from penstock.simulate.profiles import parse_profile
from penstock_lab.demo import (
    CORES,
    END_SECONDS,
    EXECUTORS,
    PHASES,
    SETTINGS,
    _StatusLines,
    list_changes,
    list_phases,
    make_workload,
    sum_up,
)

STARTED = 5000.0


def point(at, offered, held, needed):
    return {
        "at": STARTED + at,
        "offered_per_second": offered,
        "observed_per_second": offered,
        "backlog_records": 0,
        "batch_seconds": 3.0,
        "period_seconds": 5.0,
        "slots_needed": needed,
        "slots_held": held,
        "executors": held // CORES,
    }


def status():
    ends = [phase.start for phase in PHASES[2:]] + [END_SECONDS]
    shown = zip(PHASES[1:], ends, (2, 8, 2), strict=True)
    recent = [point(end - 1, phase.rate, held, held) for phase, end, held in shown]
    change = {"at": STARTED + 60, "kind": "scale-out", "reason": "needs 8 slots", "count": 1}
    outcome = {"at": STARTED + 70, "status": "done", "observed": 4, "seconds": 10.0, "detail": ""}
    return {
        "application": "app-1",
        "name": "demo",
        "now": STARTED + END_SECONDS,
        "queries": [],
        "recent": recent,
        "decisions": [
            {"at": STARTED + 30, "kind": "hold", "reason": "enough", "count": 3},
            {**change, "from": 1, "to": 4, "expected": "batches of 3 s", "outcome": outcome},
        ],
        "last_decision": change,
        "slots": 2,
        "slots_needed": 2,
        "load_started": STARTED,
    }


def printed(renderable):
    out = io.StringIO()
    Console(file=out, width=120).print(renderable)
    return out.getvalue()


def test_the_rate_steps_up_and_later_down():
    profile = parse_profile(make_workload().profile)
    rates = [profile.cumulative(phase.start + 2) - profile.cumulative(phase.start + 1) for phase in PHASES]
    assert rates == pytest.approx([phase.rate for phase in PHASES])
    assert rates[1] < rates[2] > rates[3]
    assert make_workload().count_slots(max(rates)) < EXECUTORS * CORES


def test_it_ends_in_under_four_minutes():
    # a minute is left for the cluster to start and to stop
    assert END_SECONDS <= 180


def test_the_settings_are_known_ones():
    assert load_settings(environment={}, arguments=SETTINGS).bounds.most == EXECUTORS


def test_each_phase_is_shown_as_it_stood_at_its_end():
    result = sum_up(status())
    assert [phase["phase"] for phase in result["phases"]] == ["low", "high", "low again"]
    assert [phase["slots_held"] for phase in result["phases"]] == [2, 8, 2]
    assert [one["to"] for one in result["changes"]] == [4]
    assert result["slot_seconds"] < result["slot_seconds_at_peak_size"]


def test_the_tables_show_changes_with_their_reasons():
    result = sum_up(status())
    changes, phases = printed(list_changes(result)), printed(list_phases(result))
    assert "1 → 4" in changes
    assert "needs 8 slots" in changes
    assert "high" in phases
    assert "slot-seconds" in phases


def test_a_run_that_saw_nothing_still_has_a_summary():
    empty = {**status(), "recent": [], "decisions": []}
    result = sum_up(empty)
    assert result["slot_seconds"] == pytest.approx(0.0)
    assert "phase" in printed(list_phases(result))


def test_without_a_terminal_a_line_is_printed_for_news_only():
    out = io.StringIO()
    lines = _StatusLines(Console(file=out, width=200))
    for _ in range(3):
        lines.update(status(), 10.0)
    assert len(out.getvalue().strip().splitlines()) == 1
