"""Ratios of attached to unattached blocks, from blocks whose answers are plain; no Spark runs here."""

import math
import os
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ActionFailed
from penstock_lab.claims.ds2.word_count import judge_overhead
from penstock_lab.experiments.batches import BatchSeen
from penstock_lab.experiments.overhead import (
    ALONE,
    ATTACHED,
    Block,
    BlockSpan,
    Ratio,
    compare_blocks,
    compare_sides,
    make_block,
    order_blocks,
)
from penstock_lab.ground.processes import ProcessorTime, processor_time
from penstock_lab.report.bench import BenchReport

USED = ProcessorTime(0.5, 1.5, 20.0)


def blocks(attached, alone, count=24):
    rates = {ATTACHED: attached, ALONE: alone}
    sides = [ATTACHED if first else ALONE for first in order_blocks(count)]
    return [Block(side, rates[side], 1000 / rates[side], 20, 50.0, 0.2) for side in sides]


def report(measured_blocks):
    measured = compare_blocks(measured_blocks)
    return BenchReport("overhead", measured, judge_overhead(measured))


def test_equal_blocks_have_a_ratio_of_one_and_meet_the_targets():
    found = report(blocks(500.0, 500.0))
    assert found.measured.summary["throughput_ratio"] == pytest.approx(1.0)
    assert found.measured.summary["latency_ratio"] == pytest.approx(1.0)
    assert all(target.met for target in found.judged.targets)
    assert [row["system"] for row in found.measured.rows[:4]] == [ATTACHED, ALONE, ALONE, ATTACHED]


def test_two_percent_lost_are_measured_and_miss_both_targets():
    found = report(blocks(490.0, 500.0))
    assert found.measured.summary["throughput_ratio"] == pytest.approx(0.98)
    assert [target.measured for target in found.judged.targets] == pytest.approx([0.98, 500 / 490])
    assert [target.met for target in found.judged.targets] == [False, False]


def test_where_noise_hides_one_per_cent_nothing_counts_as_measured():
    noisy = [
        Block(block.system, block.records_per_second * (1.2 if number % 3 else 1.0), 1.0, 20, 50.0, 0.2)
        for number, block in enumerate(blocks(500.0, 500.0))
    ]
    found = report(noisy)
    assert (
        found.measured.summary["throughput_ratio_low"]
        < 0.99
        < found.measured.summary["throughput_ratio_high"]
    )
    assert found.judged.targets[0].measured is None
    assert not found.judged.targets[0].met
    assert any(note.startswith("throughput: not measured") for note in found.notes)


def test_four_blocks_are_never_enough_to_judge_even_when_they_look_good():
    found = report(blocks(550.0, 500.0, count=4))
    assert [target.measured for target in found.judged.targets] == [None, None]
    assert found.to_json()["summary"]["throughput_ratio_low"] is None


def steady():
    return [BatchSeen(float(start), 1.0, 100, 0) for start in range(-1, 12)]


def test_a_block_counts_whole_batches_only_and_all_of_them():
    slow = [BatchSeen(9.0, 1.9, 100, 0) if batch.start == 9.0 else batch for batch in steady()]
    found = make_block(
        BlockSpan(ATTACHED, 0.5, 10.95, USED), [batch for batch in slow if batch.start != 10.0]
    )
    assert (found.batches, found.batch_seconds) == (9, pytest.approx(9.9 / 9))
    assert found.records_per_second == pytest.approx(900 / 9.9)


def test_processor_time_is_taken_for_a_million_records_and_for_the_driver():
    found = make_block(BlockSpan(ATTACHED, 0.0, 10.0, USED), steady())
    # 100 records a second for 10 s, and 20 s of all processors
    assert found.processor_seconds == pytest.approx(20.0 / 1000 * 1e6)
    assert found.driver_share == pytest.approx(0.2)


def test_a_block_without_batches_is_said_to_be_one():
    with pytest.raises(ActionFailed, match="only 0 batches"):
        make_block(BlockSpan(ALONE, 0.0, 10.0, USED), [])


def test_the_time_of_this_process_is_counted_once_and_grows():
    before = processor_time(os.getpid())
    began = time.process_time()
    while time.process_time() < began + 0.2:
        math.sqrt(2.0)
    used = processor_time(os.getpid()).since(before)
    assert 0.1 < used.python == used.driver_jvm <= used.everything


def test_the_order_is_abba_baab():
    assert "".join("AB"[not first] for first in order_blocks(16)) == "ABBABAABBAABABBA"


@given(st.floats(0.5, 2.0), st.floats(-0.01, 0.01), st.floats(-1e-4, 1e-4))
def test_a_drift_falls_on_both_sides_alike(ratio, steady, bent):
    first = order_blocks(32)
    drift = [math.exp(steady * n + bent * n * n) for n in range(32)]
    figures = [height * (ratio if ours else 1.0) for height, ours in zip(drift, first, strict=True)]
    # a bend of 1e-4 a block moves single fours by some 4e-4, either way
    assert compare_sides(first, figures).value == pytest.approx(ratio, rel=1e-3)


def test_equal_blocks_have_an_interval_of_no_width():
    found = compare_sides(order_blocks(16), [3.0] * 16)
    assert (found.value, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_one_disturbed_block_hardly_moves_the_ratio():
    figures = [100.0] * 24
    figures[5] = 20.0
    assert compare_sides(order_blocks(24), figures).value == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("truth", [0.95, 0.995, 1.0])
def test_the_interval_holds_the_truth_as_often_as_it_says(truth):
    random, first, hits = np.random.default_rng(3), np.array(order_blocks(32)), 0
    for _ in range(60):
        noise = np.exp(0.03 * random.standard_normal(32))
        found = compare_sides(list(first), list(np.where(first, truth, 1.0) * noise))
        hits += found.low <= truth <= found.high
    # 95 % nominal; resampling eight fours is a little too sure of itself
    assert hits >= 48


def test_too_few_blocks_have_no_interval_and_are_not_judged():
    found = compare_sides(order_blocks(4), [1.0, 1.0, 1.0, 1.0])
    assert found.value == 1.0
    assert math.isnan(found.low) and math.isnan(found.high)
    assert found.tell(least=0.99) is None


@pytest.mark.parametrize(
    ("low", "high", "judged"),
    [(0.992, 1.004, 1.0), (0.97, 0.985, 1.0), (0.985, 1.004, None), (0.97, 1.02, None)],
)
def test_a_ratio_is_judged_when_its_whole_interval_is_on_one_side(low, high, judged):
    assert Ratio(1.0, low, high).tell(least=0.99) == judged
    assert Ratio(1.0, 2 - high, 2 - low).tell(most=1.01) == judged


@pytest.mark.parametrize("missing", [0.0, math.nan])
def test_what_was_not_measured_has_no_ratio(missing):
    found = compare_sides(order_blocks(16), [missing, *[1.0] * 15])
    assert math.isnan(found.value)
    assert found.tell(least=0.99) is None
