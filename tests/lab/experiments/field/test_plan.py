"""The trials of the field: their loads, how long they take, which are kept, and the search for the oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ActionFailed, BadInput
from penstock.simulate.profiles import parse_profile
from penstock_lab.experiments.field import plan
from penstock_lab.experiments.field.kept import KeptTrials
from penstock_lab.experiments.field.plan import FieldTrial
from penstock_lab.experiments.field.rows import (
    SHOWN_SECONDS,
    WARM_SECONDS,
    Ran,
    measure_trial,
    summarise_field,
)
from penstock_lab.experiments.field.trace import DoneBatch, FieldTrace
from penstock_lab.experiments.field.trials import FieldRun, find_least, run_all, tell_guesses
from penstock_lab.experiments.measurement import Extent
from penstock_lab.jobs.catalog import JOBS, find_job
from tests.lab.experiments.field.made_runs import a_run, a_trial

ALL = [job for job in JOBS.values() if not job.ends_by_itself]
BACKLOG = find_job("available-now")
QUICK = [find_job(name) for name in plan.QUICK_STARTS]


def test_the_whole_takes_little_more_than_two_hours_and_a_quick_run_less_than_ten_minutes():
    assert plan.estimate_field([*ALL, BACKLOG], quick=False) <= 2.3 * 3600
    assert plan.estimate_field(QUICK, quick=True) < 600


def test_an_estimate_adds_up_by_hand():
    job = find_job("no-trigger")
    # 90 + 30, 160 + 90 idle + 30, and 1.2 searches of 100 s + 30
    assert plan.estimate_job(job, quick=False) == pytest.approx(120 + 280 + 1.2 * 130)
    assert plan.estimate_job(job, quick=True) == pytest.approx(80 + 30)
    # three days of 240 + 30, 90 idle after one, two searches
    assert plan.estimate_day(job) == pytest.approx(3 * 270 + 90 + 2 * 130)


@pytest.mark.parametrize(
    ("job", "seconds"), [("numpy-scoring", 100), ("large-files", 100), ("two-queries", 120)]
)
def test_a_fixed_run_has_several_periods_of_the_slowest_query_or_file(job, seconds):
    assert plan.plan_search(find_job(job), 10.0, 2).seconds == seconds


def test_the_page_names_the_lengths_as_they_are():
    page = " ".join((Path(__file__).parents[4] / "docs" / "proving-ground.md").read_text("utf-8").split())
    searches = [plan.plan_search(job, 1.0, 1).seconds for job in ALL]
    assert f"fixed sizes for {min(searches):g} to {max(searches):g} s each" in page
    assert f"held for its last {SHOWN_SECONDS:g} s" in page
    assert f"without the first {WARM_SECONDS}:" in page
    assert f"the same {plan.DAY_SECONDS / 60:g} minutes" in page
    assert f"keep {plan.BUSY_SLOTS:g} slots busy, those of the day {plan.DAY_BUSY_SLOTS:g}" in page
    assert f"`{plan.DAY_JOB}`, {plan.DAY_SECONDS / 60:g} minutes" in page


def test_every_job_is_run_from_too_few_and_from_too_many():
    for job in ALL:
        ours = [trial for trial in plan.plan_job(job, quick=False) if trial.system == "penstock"]
        assert [(trial.start, trial.executors) for trial in ours] == [("under", 1), ("over", plan.WORKERS)]
    loads = Counter(trial.load for job in ALL for trial in plan.plan_job(job, quick=False))
    assert loads.keys() == {"steady", "step-up", "step-down", "ramp"}
    starts = {trial.start for job in QUICK for trial in plan.plan_job(job, quick=True)}
    assert starts == {"under", "over"}


def test_a_job_that_ends_by_itself_reads_a_backlog_and_has_no_oracle(tmp_path: Path):
    ground = MadeUpGround({plan.find_rate(BACKLOG): 3})
    rows = start_run(ground, tmp_path / "kept").run_job(BACKLOG, quick=False)
    assert [(trial.system, trial.executors, trial.is_backlog) for trial in ground.ran] == [
        ("penstock", 1, True)
    ]
    assert {(row["oracle_executors"], row["oracle"]) for row in rows} == {(None, "none")}
    # its end is that of its driver: 2.2 slots' work of a minute may take 132 s on one executor
    assert ground.ran[0].most_seconds >= 2 * 132
    assert all(row["prediction_error"] is None and row["seconds_behind"] == 0 for row in rows)
    summary = summarise_field(rows)
    assert summary["output_equal_share"] == 1 and "longest_first_decision" not in summary


@pytest.mark.parametrize("load", ["steady", "step-up", "step-down", "ramp"])
def test_a_load_ends_at_the_rate_that_the_oracle_is_for(load):
    trial = a_trial(load=load, rate=60.0)
    profile = parse_profile(trial.profile)
    last = profile.cumulative(trial.seconds) - profile.cumulative(trial.seconds - 20)
    assert last == pytest.approx(20 * 60.0)


def test_a_day_reaches_its_rate_at_the_peak(tmp_path):
    recording = tmp_path / "day.csv"
    recording.write_text("1\n3\n2\n")
    peak, dynamic, ours = plan.plan_day(find_job("no-trigger"), 6, recording)
    assert (peak.system, peak.executors, dynamic.executors, ours.executors) == ("fixed-peak", 6, 1, 1)
    assert peak.profile == dynamic.profile == ours.profile
    profile, third = parse_profile(ours.profile), ours.seconds / 3
    assert profile.cumulative(2 * third) - profile.cumulative(third) == pytest.approx(third * ours.rate)


@given(st.integers(1, 9), st.sets(st.integers(1, 8)), st.integers(1, 8))
def test_the_least_size_is_found_wherever_the_search_begins(least, shown, guess):
    asked: list[int] = []

    def does(size: int) -> bool:
        asked.append(size)
        return size >= least

    known = {size: True for size in shown if size >= least}
    assert find_least(known, guess, 8, does) == (least if least <= 8 else None)
    assert len(asked) == len(set(asked)), "no size is run twice"
    assert not set(asked) & set(known), "what is shown is not run again"


def test_a_search_from_a_size_that_was_shown_asks_only_for_the_one_below():
    asked: list[int] = []
    assert find_least({4: True, 3: True}, 6, 8, lambda size: bool(asked.append(size))) == 3
    assert asked == [2]


def test_trials_are_kept_by_all_that_tells_them_apart(tmp_path: Path):
    path = tmp_path / "kept" / "trials.jsonl"
    done = KeptTrials(path).add(measure_trial(a_run()))
    kept = KeptTrials(path).find(a_trial())
    assert kept is not None
    assert (kept.held_seconds, kept.shows) == (done.held_seconds, done.shows)
    assert kept.latencies == pytest.approx(done.latencies, abs=1e-3)
    others = ({"load": "step-up"}, {"rate": 11.0}, {"seconds": 61.0}, {"start": "over"}, {"executors": 2})
    for other in (*others, {"system": "fixed"}, {"recording": Path("day.csv")}):
        assert KeptTrials(path).find(a_trial(**other)) is None, other
    KeptTrials(path).forget()
    assert KeptTrials(path).find(a_trial()) is None


def test_a_failed_trial_is_not_kept(tmp_path: Path):
    path = tmp_path / "trials.jsonl"
    KeptTrials(path).add(measure_trial(replace(a_run(), failure="the job ended with code 1")))
    assert KeptTrials(path).find(a_trial()) is None


def test_a_line_that_was_broken_off_is_taken_away_and_another_is_named(tmp_path: Path):
    path = tmp_path / "trials.jsonl"
    KeptTrials(path).add(measure_trial(a_run()))
    with path.open("ab") as file:
        file.write(b'{"row": {"job": "no-')
    KeptTrials(path).add(measure_trial(a_run(a_trial(load="ramp"))))
    kept = KeptTrials(path)
    assert kept.find(a_trial()) is not None and kept.find(a_trial(load="ramp")) is not None
    path.write_text('{"job": "no-trigger", "start": "under"}\n')
    with pytest.raises(BadInput, match="line 1 is no trial of the field"):
        KeptTrials(path)


class MadeUpGround:
    """Runs trials at once: one executor does a share of the rate, and steered ones end at a size."""

    def __init__(self, least: dict[float, int], ends: int = 3, settles: bool = True) -> None:
        self.least, self.ends, self.settles = least, ends, settles
        self.ran: list[FieldTrial] = []

    def run(self, trial: FieldTrial) -> Ran:
        self.ran.append(trial)
        size = trial.executors if trial.system.startswith("fixed") else self.ends
        early = 0 if self.settles or trial.system.startswith("fixed") else trial.seconds - 10
        held = tuple((float(at), size if at >= early else size + 1) for at in range(int(trial.seconds) + 1))
        share = 1.0 if size >= self.least[trial.rate] else 0.2
        done = tuple(
            DoneBatch("q", number, 5.0 * number, 3.0, 5 * trial.rate * share)
            for number in range(int(trial.seconds / 5))
        )
        return Ran(trial, 0.0, FieldTrace(held, done), output_equal=True)


JOB = find_job("small-files-lookup")
RATE, DAY_RATE = plan.find_rate(JOB), plan.find_rate(JOB, plan.DAY_BUSY_SLOTS)


def start_run(ground: MadeUpGround, path: Path, tell=lambda _: None) -> FieldRun:
    return FieldRun(ground, KeptTrials(path), tell, plan.estimate_field([JOB], quick=False))


def test_a_job_is_run_and_its_oracle_searched_from_what_was_shown(tmp_path: Path):
    ground = MadeUpGround({RATE: 3})
    rows = start_run(ground, tmp_path / "kept").run_job(JOB, quick=False)
    assert [(trial.system, trial.executors) for trial in ground.ran] == [
        ("penstock", 1),
        ("penstock", 6),
        ("dynamic-allocation", 1),
        ("fixed", 2),
    ]
    assert {(row["oracle_executors"], row["oracle"]) for row in rows} == {(3, "searched")}


def test_the_run_of_the_search_at_the_oracle_is_the_row_of_the_peak(tmp_path: Path):
    ground = MadeUpGround({RATE: 2}, settles=False)
    rows = start_run(ground, tmp_path / "kept").run_job(JOB, quick=False)
    assert [trial.executors for trial in ground.ran if trial.system == "fixed"] == [3, 2, 1]
    named = {row["start_executors"]: row["system"] for row in rows if row["system"].startswith("fixed")}
    assert named == {3: "fixed", 2: "fixed-peak", 1: "fixed"}


def test_a_quick_run_says_that_its_oracle_is_computed(tmp_path: Path):
    ground = MadeUpGround({RATE: 3})
    (row,) = start_run(ground, tmp_path / "kept").run_job(JOB, quick=True)
    assert (row["oracle_executors"], row["oracle"], len(ground.ran)) == (3, "computed", 1)


def test_a_smaller_size_that_was_shown_to_keep_up_outranks_a_computed_oracle(tmp_path: Path):
    # what a record costs was measured on another machine, and this one is faster
    (row,) = start_run(MadeUpGround({RATE: 2}, ends=2), tmp_path / "fast").run_job(JOB, quick=True)
    assert (row["oracle_executors"], row["oracle"]) == (2, "shown")
    (row,) = start_run(MadeUpGround({RATE: 3}, ends=2), tmp_path / "short").run_job(JOB, quick=True)
    assert (row["oracle_executors"], row["oracle"]) == (3, "computed")


def test_a_run_goes_on_where_it_was_broken_off(tmp_path: Path):
    first, second = MadeUpGround({RATE: 3}), MadeUpGround({RATE: 3})
    begun = start_run(first, tmp_path / "kept")
    done = [begun.run_trial(trial) for trial in plan.plan_job(JOB, quick=False)[:2]]
    start_run(second, tmp_path / "kept").run_job(JOB, quick=False)
    assert len(done) == 2 and [trial.system for trial in second.ran] == ["dynamic-allocation", "fixed"]


def test_a_day_has_three_sides_and_the_lateness_of_each(tmp_path: Path):
    ground = MadeUpGround({DAY_RATE: 5}, ends=3)
    rows = start_run(ground, tmp_path / "kept").run_day(JOB, None)
    assert [trial.executors for trial in ground.ran if trial.load == "steady"] == [4, 5]
    day = {row["system"]: row for row in rows if row["load"] == "day"}
    assert day["fixed-peak"]["start_executors"] == 5
    assert day["fixed-peak"]["late_share"] <= 0.01
    assert day["penstock"]["late_share"] > 0.5
    ratio = day["penstock"]["executor_seconds"] / day["fixed-peak"]["executor_seconds"]
    assert ratio == pytest.approx(3 / 5)


def test_what_is_left_is_told_with_every_trial(tmp_path: Path):
    told: list[str] = []
    running = start_run(MadeUpGround({RATE: 3}), tmp_path / "kept", told.append)
    running.run_job(JOB, quick=False)
    left = [int(text.split("about ")[1].split(" ")[0]) for text in told if "left" in text]
    assert len(left) == 4 and left == sorted(left, reverse=True) and left[0] > left[-1]


def test_a_search_does_not_take_a_failure_for_a_size_that_is_too_small(tmp_path: Path):
    class Broken(MadeUpGround):
        def run(self, trial: FieldTrial) -> Ran:
            return replace(super().run(trial), failure="it died" if trial.system == "fixed" else "")

    running = start_run(Broken({RATE: 3}), tmp_path / "kept")
    with pytest.raises(ActionFailed, match="the search stopped at 2 executors: it died"):
        running.run_job(JOB, quick=False)


def test_rates_from_guesses_are_told():
    guessed = [job for job in JOBS.values() if job.cost.is_guess]
    measured = [job for job in JOBS.values() if not job.cost.is_guess]
    assert tell_guesses(measured) == []
    assert all(job.name in text for job in guessed for text in tell_guesses([*measured, job]))


def test_a_load_that_no_size_carries_is_told_and_the_others_go_on(tmp_path: Path):
    ground = MadeUpGround({RATE: 9, DAY_RATE: 6}, ends=6)
    running = start_run(ground, tmp_path / "kept")
    with pytest.raises(ActionFailed, match=f"no size up to 6 keeps up with {RATE:g} records/s"):
        running.run_job(JOB, quick=False)
    rows, failures = run_all(running, [JOB], Extent(), lambda _: None)
    assert len(failures) == 1 and "no size up to 6" in failures[0]
    assert {row["load"] for row in rows if row["system"] == "penstock"} == {"day"}
