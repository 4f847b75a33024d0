"""What the benchmark of sizing counts: the least that does, stalls, decreases that were undone, losses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench.sizing import CASES, OVER, job_words, report, row_of, sizes_of
from penstock.bench.sizing_job import CASES as JOBS
from penstock.bench.sizing_search import NONE_DOES, SAMPLES, Optimum, Trial, batches, judged, search
from penstock.bench.sizing_supervised import (
    Sized,
    course,
    final_sizes,
    lost_after_decrease,
    stalls,
    undone,
)
from penstock.dataflow.window import ExecutorUse
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect
from penstock.journal.records import ActionRecord

MIB = 1024.0**2
USE = ExecutorUse(100 * MIB, 240 * MIB, 490 * MIB, 0.5, 0.05, 1.0, 0.0)


def an_action(begun, ended, before="512m", after="768m", key="memory", rule="P1", status=Status.DONE):
    effect = ExpectedEffect("")
    record = ActionRecord(1, "app", 1, "sage", begun, (), {}, {}, {}, {}, f"{rule} (x): y", (), effect)
    settings = {f"spark.executor.{key}": (before, after)}
    return replace(record, ended_at=ended, settings=settings, status=status)


def a_run(*ends, actions=(), executors="0"):
    return Sized(tuple(actions), tuple((at, executors) for at in ends), True, 0.0)


class TestSearch:
    @pytest.mark.parametrize(("need", "found"), [(300, 450), (500, 550), (650, 650), (800, 850), (801, 850)])
    def test_the_smallest_heap_that_does_is_found_by_halving(self, need, found):
        asked = []

        def tried(heap):
            asked.append(heap)
            return Trial(heap, "" if heap >= need else "too small", 90.0, 2)

        optimum = search(tried, 850, 2)
        assert (optimum.heap_mb, optimum.overhead_mb, optimum.cores) == (found, pytest.approx(100), 2)
        assert optimum.heap_mb - optimum.within_mb <= max(need, 450)
        assert len(asked) == len(set(asked)) <= 4

    def test_where_none_does_nothing_is_claimed(self):
        found = search(lambda heap: Trial(heap, "too small"), 850, 2)
        assert found == NONE_DOES or math.isnan(found.memory_mb)

    @pytest.mark.parametrize(
        ("changes", "trouble"),
        [
            ({}, ""),
            ({"heap_used_bytes": 230 * MIB}, "heap use never fell below"),
            ({"gc_seconds": 0.5}, "went into GC"),
            ({"gc_count": 10.0}, "collections a minute"),
        ],
    )
    def test_what_does_is_what_no_rule_would_enlarge(self, changes, trouble):
        found = judged(256, [(1.5, replace(USE, **changes))] * SAMPLES)
        assert found.beside_mb == 250.0 and found.cores == 1
        assert trouble in found.trouble and bool(found.trouble) is bool(trouble)

    def test_cores_are_the_least_that_are_not_always_full(self):
        assert judged(256, [(1.5, replace(USE, cpu_cores=1.3))] * SAMPLES).cores == 2
        assert judged(256, [(1.5, USE)]).trouble, "one sample is too few"


def test_a_gap_is_a_stall_unless_a_restart_explains_it():
    ends = (0, 2, 4, 40, 42, 70)
    assert stalls(a_run(*ends)) == 2
    assert stalls(a_run(*ends, actions=[an_action(5.0, 39.0)])) == 1
    assert stalls(a_run()) == 0


def test_what_goes_up_again_after_a_decrease_was_undone():
    up, down = an_action(0, 1), an_action(2, 3, before="768m", after="512m", rule="P6")
    assert undone((up, down)) == 0, "a step up that went too far is taken back, once"
    assert undone((down, up)) == 1 and undone((up, down, up)) == 1
    assert undone((down, an_action(2, 3, key="memoryOverhead"))) == 0


def test_an_executor_that_goes_after_a_decrease_counts_unless_it_was_restarted():
    down = an_action(2.0, 3.0, before="768m", after="512m", rule="P6")
    lost = Sized((down,), ((1.0, "0"), (4.0, "0"), (9.0, "1"), (11.0, "1")), True, 0.0)
    assert lost_after_decrease(lost) == 1
    assert lost_after_decrease(replace(lost, actions=(an_action(2.0, 3.0),))) == 0
    assert lost_after_decrease(replace(lost, actions=(down, an_action(5.0, 8.0)))) == 0


def test_only_what_was_done_counts_for_the_size_in_the_end():
    conf = sizes_of((512, 640, 1))
    failed = an_action(2, 3, after="4g", status=Status.FAILED)
    assert final_sizes(conf, (an_action(0, 1), failed))["spark.executor.memory"] == 768.0
    assert course((an_action(0, 1), failed)) == "P1 memory 512m → 768m; P1 memory 512m → 4g (failed)"


def test_a_row_takes_the_worse_of_memory_and_cores():
    case = replace(CASES[0], over=(1024, 1000, 2))
    run = a_run(1.0, actions=[an_action(0, 9, before="1024m", after="500m", rule="P6")])
    row = row_of(case, OVER, run, Optimum(450.0, 750.0, 2.0))
    assert (row["memory_over_optimal"], row["cores_over_optimal"]) == (1.25, 1.0)
    assert (row["final_over_optimal"], row["heap_downs"], row["sizing_seconds"]) == (1.25, 1, 9.0)
    assert math.isnan(row_of(case, OVER, run, NONE_DOES)["final_over_optimal"])


def test_targets_are_judged_from_the_rows():
    row = row_of(CASES[0], OVER, a_run(1.0), Optimum(1000.0, 1500.0, 1.0))
    assert report([row]).met
    assert not report([row, {**row, "final_over_optimal": 1.3}]).met
    assert not report([row, {**row, "final_over_optimal": math.nan}]).met
    assert not report([{**row, "settled": 0}]).met
    assert any("python (over)" in note for note in report([{**row, "settled": 0}]).notes)


def test_every_case_has_its_job():
    assert {case.name for case in CASES} == set(JOBS)
    assert all(Path(job_words(name, Path("x"))[0]).is_file() for name in JOBS)


def test_batches_are_read_as_far_as_they_are_written(tmp_path: Path):
    assert batches(tmp_path) == []
    (tmp_path / "batches").write_text("1.5 0\n3.5 0,1\n4.")
    assert batches(tmp_path) == [(1.5, "0"), (3.5, "0,1")]
