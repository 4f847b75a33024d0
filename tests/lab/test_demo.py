"""The demo's load and summary; the run itself is seen with `make demo`."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from penstock.settings.model import load_settings
from penstock.simulate.profiles import parse_profile
from penstock_lab.demo import (
    END_SECONDS,
    EXECUTORS,
    GROUND,
    PACED,
    PHASES,
    SETTINGS,
    _StatusLines,
    list_changes,
    list_phases,
    make_workload,
    measure_latency,
    sum_up,
    write_conclusion,
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
        "executors": held // PACED.cores,
    }


def status():
    ends = [phase.start for phase in PHASES[2:]] + [END_SECONDS]
    shown = zip(PHASES[1:], ends, (2, 8, 2), strict=True)
    recent = [point(end - 1, phase.share * PACED.full_rate, held, held) for phase, end, held in shown]
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


@pytest.mark.parametrize("stage", [GROUND, PACED])
def test_the_rate_steps_up_and_later_down(stage):
    profile = parse_profile(make_workload(stage).profile)
    rates = [profile.cumulative(phase.start + 2) - profile.cumulative(phase.start + 1) for phase in PHASES]
    assert rates == pytest.approx([phase.share * stage.full_rate for phase in PHASES])
    assert rates[1] < rates[2] > rates[3]


def test_the_full_rate_keeps_some_of_the_slots_busy():
    assert 1 < make_workload(PACED).count_slots(PACED.full_rate) < EXECUTORS * PACED.cores


def report(at, seconds, records):
    return {
        "timestamp": datetime.fromtimestamp(STARTED + at, UTC).isoformat(),
        "numInputRows": records,
        "durationMs": {"triggerExecution": seconds * 1000},
        "sources": [{"endOffset": {"start_ms": STARTED * 1000}}],
    }


def test_latency_counts_from_the_arrival_of_records_to_the_end_of_their_batch():
    # arrivals in [10, 20) are done at 22: 2.5 to 11.5 s, a second apart; those in [20, 30) at 31: 1.5 to 10.5
    reports = [report(0, 1, 5), report(10, 4, 99), report(20, 2, 100), report(25, 0, 0), report(30, 1, 100)]
    found = measure_latency(reports, after=10)
    assert found == {"latency_median_seconds": 6.5, "latency_p99_seconds": 11.5}
    assert measure_latency(reports[:1], after=0) == {} and measure_latency([], after=0) == {}


def test_records_count_and_not_batches():
    reports = [report(0, 1, 5), report(10, 1, 1), report(20, 50, 999)]
    assert measure_latency(reports, after=0)["latency_median_seconds"] == 54.5


def test_the_conclusion_is_one_sentence():
    result = {"slot_seconds": 1200.0, "slot_seconds_at_peak_size": 2000.0, "latency_p99_seconds": 8.04}
    assert write_conclusion(result) == (
        "Penstock held 1,200 slot-seconds where the peak size would have cost 2,000, 40% less, and 99 % of "
        "the records were through within 8.0 s."
    )
    nothing = {"slot_seconds": 0.0, "slot_seconds_at_peak_size": 0.0}
    assert "less" not in write_conclusion(nothing)


def test_it_ends_in_under_four_minutes():
    # a minute is left for the cluster to start and to stop
    assert END_SECONDS <= 180


def test_the_settings_are_known_ones():
    assert load_settings(environment={}, arguments=SETTINGS).bounds.most == EXECUTORS


def test_each_phase_is_shown_as_it_stood_at_its_end():
    result = sum_up(status(), PACED)
    assert [phase["phase"] for phase in result["phases"]] == ["low", "high", "low again"]
    assert [phase["slots_held"] for phase in result["phases"]] == [2, 8, 2]
    assert [one["to"] for one in result["changes"]] == [4]
    assert result["slot_seconds"] < result["slot_seconds_at_peak_size"]


def test_the_tables_show_changes_with_their_reasons():
    result = sum_up(status(), PACED)
    changes, phases = printed(list_changes(result)), printed(list_phases(result))
    assert "1 → 4" in changes
    assert "needs 8 slots" in changes
    assert "high" in phases
    assert "slots held" in phases


def test_a_run_that_saw_nothing_still_has_a_summary():
    empty = {**status(), "recent": [], "decisions": []}
    result = sum_up(empty, PACED)
    assert result["slot_seconds"] == pytest.approx(0.0)
    assert "phase" in printed(list_phases(result))


def test_without_a_terminal_a_line_is_printed_for_news_only():
    out = io.StringIO()
    lines = _StatusLines(Console(file=out, width=200))
    for _ in range(3):
        lines.update(status(), 10.0)
    assert len(out.getvalue().strip().splitlines()) == 1
