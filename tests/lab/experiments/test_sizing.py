"""Counts of the sizing benchmark: the least that does, stalls, decreases that were undone, losses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.dataflow.window import ExecutorUse
from penstock.decide.outcome import Status
from penstock_lab.claims.sage import judge
from penstock_lab.experiments.sizing.job import CASES as JOBS
from penstock_lab.experiments.sizing.search import (
    NONE_FITS,
    SAMPLES,
    HeapTrial,
    Optimum,
    SizedJob,
    judge_trial,
    read_batches,
    search_heap,
)
from penstock_lab.experiments.sizing.trials import CASES, OVER, describe_sizes, make_row, name_job, summarise
from tests.lab import made_up

MIB = 1024.0**2
ON_TIME = [(2.0 * n, "0") for n in range(8)]
USE = ExecutorUse(100 * MIB, 240 * MIB, 490 * MIB, 0.5, 0.05, 1.0, 0.0)


def an_action(begun, ended, before="512m", after="768m", key="memory", rule="P1", status=Status.DONE):
    settings = {f"spark.executor.{key}": (before, after)}
    more = {"ended_at": ended, "settings": settings, "status": status}
    return made_up.an_action(begun, {}, reason=f"{rule} (x): y", **more)


def a_run(*ends, actions=(), executors="0"):
    return SizedJob(tuple(actions), tuple((at, executors) for at in ends), True, 0.0)


class TestSearch:
    @pytest.mark.parametrize(("need", "found"), [(300, 450), (500, 550), (650, 650), (800, 850), (801, 850)])
    def test_the_smallest_heap_that_does_is_found_by_halving(self, need, found):
        asked = []

        def tried(heap):
            asked.append(heap)
            return HeapTrial(heap, "" if heap >= need else "too small", 90.0, 2)

        optimum = search_heap(tried, 850, 2)
        assert (optimum.heap_mb, optimum.overhead_mb, optimum.cores) == (found, 90.0, 2)
        assert optimum.heap_mb - optimum.within_mb <= max(need, 450)
        assert len(asked) == len(set(asked)) <= 4

    def test_where_none_does_nothing_is_claimed(self):
        found = search_heap(lambda heap: HeapTrial(heap, "too small"), 850, 2)
        assert found == NONE_FITS or math.isnan(found.memory_mb)

    @pytest.mark.parametrize(
        ("changes", "trouble"),
        [
            ({}, ""),
            # bounds of Sage's rules are not asked: such a heap runs well
            ({"heap_used_bytes": 230 * MIB}, ""),
            ({"gc_count": 10.0}, ""),
            ({"gc_seconds": 0.14}, ""),
            ({"gc_seconds": 0.5}, "33% of the time went into GC"),
        ],
    )
    def test_a_heap_is_enough_where_little_time_goes_into_gc(self, changes, trouble):
        found = judge_trial(256, [(1.5, replace(USE, **changes))] * SAMPLES, ON_TIME, 2.0)
        assert found.beside_mb == 250.0 and found.cores == 1
        assert trouble in found.trouble and bool(found.trouble) is bool(trouble)

    @pytest.mark.parametrize(
        ("batches", "trigger", "trouble"),
        [
            (ON_TIME, 2.0, ""),
            ([(3.0 * n, "0") for n in range(8)], 2.0, "a batch ends every 3.0 s"),
            ([(3.0 * n, "0") for n in range(8)], 0.0, ""),
            ([(0.0, "0"), (2.0, "0"), (4.0, "1")], 2.0, "an executor was lost"),
            ([(0.0, "0")], 2.0, "batches do not end"),
        ],
    )
    def test_a_heap_is_enough_where_batches_end_in_time_and_no_executor_is_lost(
        self, batches, trigger, trouble
    ):
        found = judge_trial(256, [(1.5, USE)] * SAMPLES, batches, trigger).trouble
        assert trouble in found and bool(found) is bool(trouble)

    def test_cores_are_those_in_use_without_what_the_jvm_takes_beside_a_task(self):
        busy = [(1.05, 1), (1.3, 2), (2.4, 3)]
        for used, cores in busy:
            samples = [(1.5, replace(USE, cpu_cores=used))] * SAMPLES
            assert judge_trial(256, samples, ON_TIME, 2.0).cores == cores
        assert judge_trial(256, [(1.5, USE)], ON_TIME, 2.0).trouble, "one sample is too few"


def test_a_gap_is_a_stall_unless_a_restart_explains_it():
    ends = (0, 2, 4, 40, 42, 70)
    assert a_run(*ends).count_stalls() == 2
    assert a_run(*ends, actions=[an_action(5.0, 39.0)]).count_stalls() == 1
    assert a_run().count_stalls() == 0


def test_what_goes_up_again_after_a_decrease_was_undone():
    up, down = an_action(0, 1), an_action(2, 3, before="768m", after="512m", rule="P6")
    assert a_run(actions=[up, down]).count_undone() == 0, "a step up that went too far is taken back, once"
    assert a_run(actions=[down, up]).count_undone() == 1 and a_run(actions=[up, down, up]).count_undone() == 1
    assert a_run(actions=[down, an_action(2, 3, key="memoryOverhead")]).count_undone() == 0


def test_an_executor_that_goes_after_a_decrease_counts_unless_it_was_restarted():
    down = an_action(2.0, 3.0, before="768m", after="512m", rule="P6")
    lost = SizedJob((down,), ((1.0, "0"), (4.0, "0"), (9.0, "1"), (11.0, "1")), True, 0.0)
    assert lost.count_lost() == 1
    assert replace(lost, actions=(an_action(2.0, 3.0),)).count_lost() == 0
    assert replace(lost, actions=(down, an_action(5.0, 8.0))).count_lost() == 0


def test_only_what_was_done_counts_for_the_size_in_the_end():
    conf = describe_sizes((512, 640, 1))
    failed = an_action(2, 3, after="4g", status=Status.FAILED)
    run = a_run(actions=[an_action(0, 1), failed])
    assert run.find_final_sizes(conf)["spark.executor.memory"] == 768.0
    assert run.describe_course() == "P1 memory 512m → 768m; P1 memory 512m → 4g (failed)"


def test_a_row_takes_the_worse_of_memory_and_cores():
    case = replace(CASES[0], over=(1024, 1000, 2))
    run = a_run(1.0, actions=[an_action(0, 9, before="1024m", after="500m", rule="P6")])
    row = make_row(case, OVER, run, Optimum(450.0, 750.0, 2.0))
    assert (row["memory_over_optimal"], row["cores_over_optimal"]) == (1.25, 1.0)
    assert (row["final_over_optimal"], row["heap_downs"], row["sizing_seconds"]) == (1.25, 1, 9.0)
    assert math.isnan(make_row(case, OVER, run, NONE_FITS)["final_over_optimal"])


def missed(*rows):
    return [claim.name for claim in judge(summarise(list(rows))).targets if not claim.met]


def test_targets_are_judged_from_the_rows():
    row = make_row(CASES[0], OVER, a_run(1.0), Optimum(1000.0, 1500.0, 1.0))
    assert missed(row) == []
    over = "final over the least that runs well, worst case"
    assert missed(row, {**row, "final_over_optimal": 1.3}) == [over]
    assert missed(row, {**row, "final_over_optimal": math.nan}) == [over]
    assert missed({**row, "memory_downs": 2}) == ["memory scale-downs, most in a case"]
    assert missed({**row, "undone": 1}) == ["decreases that were undone"]
    assert missed({**row, "lost_after_decrease": 1}) == ["executors lost after a decrease"]
    assert missed({**row, "settled": 0}) == ["applications still being sized in the end"]
    assert any("python (over)" in note for note in summarise([{**row, "settled": 0}]).notes)


def test_every_case_has_its_job():
    assert {case.name for case in CASES} == set(JOBS)
    assert all(Path(name_job(name, Path("x"))[0]).is_file() for name in JOBS)


def test_batches_are_read_as_far_as_they_are_written(tmp_path: Path):
    assert read_batches(tmp_path) == []
    (tmp_path / "batches").write_text("1.5 0\n3.5 0,1\n4.")
    assert read_batches(tmp_path) == [(1.5, "0"), (3.5, "0,1")]
