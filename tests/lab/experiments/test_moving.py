from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.dataflow.moves import Bin
from penstock.migrate.bins import BinState, StateView, Worker
from penstock_lab.claims.megaphone import judge_key_count, judge_targets
from penstock_lab.experiments.moving.key_count import Moves, summarise, summarise_phases
from penstock_lab.experiments.moving.queries import (
    ALL_AT_ONCE,
    BATCHED,
    FLUID,
    PREPARED,
    choose_quarter,
    choose_thirds,
)
from penstock_lab.ground.processes import MemorySampler, resident_bytes
from penstock_lab.report.page import write_charts
from tests.lab.made_up import a_phase
from tests.waiting import wait_for


def moved(system, *seconds, **more):
    return a_phase(system, *seconds, steady=(1.0, 2.0, 3.0), end=70.0, **more)


def test_a_row_compares_the_slowest_batch_with_the_usual_one():
    row = moved(FLUID, 2.0, 3.0).make_row()
    assert (row["case"], row["system"]) == ("1,600 keys, 16 bins", FLUID)
    assert (row["steady_median_ms"], row["max_batch_ms"], row["max_over_steady"]) == (2000.0, 3000.0, 1.5)
    assert (row["duration_s"], row["batches"], row["rows_per_s_during"]) == (20.0, 2, 36.0)
    assert (row["bytes_moved"], row["peak_rss_bytes"]) == (64, 1050.0)


def test_the_summary_is_of_the_first_case_and_growth_of_cases_with_as_many_keys_a_bin():
    phases = [
        moved(FLUID, 3.0),
        moved(BATCHED, 4.0),
        moved(PREPARED, 6.0),
        moved(ALL_AT_ONCE, 36.0),
        moved(FLUID, 30.0, keys=100),
        moved(FLUID, 4.5, keys=6400, bins=64),
    ]
    figures = summarise_phases(phases)
    assert figures["fluid_max_over_steady"] == 1.5
    assert (figures["all_at_once_over_fluid"], figures["prepared_over_fluid"]) == (12.0, 2.0)
    assert figures["fluid_rss_over_steady"] == 1.05
    assert figures["fluid_growth_with_bins"] == 1.5
    assert "batched_growth_with_bins" not in figures
    met = {target.name: target.met for target in judge_targets(figures)}
    assert met["fluid max_over_steady"] and met["all-at-once max over fluid max"]
    assert met["fluid max as state grows with bins"] and met["fluid peak memory over steady"]
    assert not met["batched max as state grows with bins"]


def test_what_was_not_measured_is_not_met():
    assert not any(target.met for target in judge_targets(summarise_phases([])))


def a_view(placement: str) -> StateView:
    bins = tuple(BinState(Bin("q", 0, number), worker) for number, worker in enumerate(placement))
    return StateView("q", "q", 3, bins, tuple(Worker(one, "host", 2) for one in "123"))


def test_a_quarter_leaves_the_fullest_executor_for_the_next():
    moves = choose_quarter(a_view("11112233"))
    assert [(one.bin.partition, one.source, one.target) for one in moves] == [(0, "1", "2"), (1, "1", "2")]
    assert {one.target for one in choose_quarter(a_view("33331122"))} == {"1"}


def test_a_newcomer_gets_every_third_bin():
    moves = choose_thirds(a_view("112211"), "3")
    assert [(one.bin.partition, one.source, one.target) for one in moves] == [(0, "1", "3"), (3, "2", "3")]


def test_the_page_has_a_line_for_each_system_and_a_picture_for_each_case(tmp_path: Path):
    phases = [moved(FLUID, 2.0), moved(ALL_AT_ONCE, 9.0), moved(FLUID, 2.0, keys=3)]
    judged = judge_key_count(summarise(Moves(phases), []))
    assert all(claim.conditions for claim in judged.claims if not claim.target)
    text = write_charts("Migration", "", judged.charts, tmp_path / "deep" / "page.html").read_text()
    # and one of the sweep over cases
    assert text.count("Plotly.newPlot") == 2 + 1
    assert '"name":"all-at-once"' in text and "3 keys, 16 bins" in text


def test_memory_is_sampled_while_the_block_runs():
    with MemorySampler() as memory:
        wait_for("a sample", lambda: memory.since(0.0), every=0.01)
    assert memory.since(0.0)[0] == pytest.approx(resident_bytes(), rel=0.5)
    assert memory.since(float("inf")) == []
    assert resident_bytes(os.getpid()) < resident_bytes(os.getppid()), "who started this is more than this"
