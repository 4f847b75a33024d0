from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.bench.memory import MemorySampler, resident_bytes
from penstock.bench.migration import quarter, spread
from penstock.bench.migration_page import write_timeline
from penstock.bench.migration_rows import ALL_AT_ONCE, BATCHED, FLUID, PREPARED, Phase, summary, targets
from penstock.bench.processes import descendants
from penstock.bench.traces import BatchSeen
from penstock.migrate.bins import Bin, BinState, StateView, Worker


def batches(*seconds: float) -> tuple[BatchSeen, ...]:
    return tuple(BatchSeen(100.0 + 5 * n, one, 1000, 1000 * n) for n, one in enumerate(seconds))


def a_phase(system: str, *seconds: float, keys: int = 1600, bins: int = 16) -> Phase:
    steady = batches(1.0, 2.0, 3.0)
    return Phase(keys, bins, system, 100.0, 120.0, steady, batches(*seconds), 64, 1000.0, 1050.0)


def test_a_row_compares_the_slowest_batch_with_the_usual_one():
    row = a_phase(FLUID, 2.0, 3.0).row()
    assert (row["case"], row["system"]) == ("1,600 keys, 16 bins", FLUID)
    assert (row["steady_median_ms"], row["max_batch_ms"], row["max_over_steady"]) == (2000.0, 3000.0, 1.5)
    assert (row["duration_s"], row["batches"], row["rows_per_s_during"]) == (20.0, 2, 100.0)
    assert (row["bytes_moved"], row["peak_rss_bytes"]) == (64, 1050.0)


def test_the_summary_is_of_the_first_case_and_growth_of_cases_with_as_many_keys_a_bin():
    phases = [
        a_phase(FLUID, 3.0),
        a_phase(BATCHED, 4.0),
        a_phase(PREPARED, 6.0),
        a_phase(ALL_AT_ONCE, 36.0),
        a_phase(FLUID, 30.0, keys=100),
        a_phase(FLUID, 4.5, keys=6400, bins=64),
    ]
    figures = summary(phases)
    assert figures["fluid_max_over_steady"] == 1.5
    assert (figures["all_at_once_over_fluid"], figures["prepared_over_fluid"]) == (12.0, 2.0)
    assert figures["fluid_rss_over_steady"] == 1.05
    assert figures["fluid_growth_with_bins"] == 1.5
    assert "batched_growth_with_bins" not in figures
    met = {target.name: target.met for target in targets(figures)}
    assert met["fluid max_over_steady"] and met["all-at-once max over fluid max"]
    assert met["fluid max as state grows with bins"] and met["fluid peak memory over steady"]
    assert not met["batched max as state grows with bins"]


def test_what_was_not_measured_is_not_met():
    assert not any(target.met for target in targets(summary([])))


def a_view(placement: str) -> StateView:
    bins = tuple(BinState(Bin("q", 0, number), worker) for number, worker in enumerate(placement))
    return StateView("q", "q", 3, bins, tuple(Worker(one, "host", 2) for one in "123"))


def test_a_quarter_leaves_the_fullest_executor_for_the_next():
    moves = quarter(a_view("11112233"))
    assert [(one.bin.partition, one.source, one.target) for one in moves] == [(0, "1", "2"), (1, "1", "2")]
    assert {one.target for one in quarter(a_view("33331122"))} == {"1"}


def test_a_newcomer_gets_every_third_bin():
    moves = spread(a_view("112211"), "3")
    assert [(one.bin.partition, one.source, one.target) for one in moves] == [(0, "1", "3"), (3, "2", "3")]


def test_the_page_has_a_line_for_each_system_and_a_picture_for_each_case(tmp_path: Path):
    phases = [a_phase(FLUID, 2.0), a_phase(ALL_AT_ONCE, 9.0), a_phase(FLUID, 2.0, keys=3)]
    text = write_timeline(phases, tmp_path / "deep" / "page.html").read_text()
    assert text.count("Plotly.newPlot") == 2
    assert '"name":"all-at-once"' in text and "3 keys, 16 bins" in text


def test_memory_is_sampled_while_the_block_runs():
    with MemorySampler() as memory:
        while not memory.since(0.0):
            pass
    assert memory.since(0.0)[0] == pytest.approx(resident_bytes(), rel=0.5)
    assert memory.since(float("inf")) == []
    assert os.getpid() in descendants(os.getpid()) and os.getppid() not in descendants(os.getpid())
