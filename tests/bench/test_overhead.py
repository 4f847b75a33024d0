"""Ratios of attached to unattached blocks, from blocks whose answers are plain; no Spark runs here."""

import math
import os
import time

import pytest

from penstock.bench.overhead import ALONE, ATTACHED, Block, Span, block_of, report
from penstock.bench.paired import order
from penstock.bench.processes import ProcessorTime, processor_time
from penstock.bench.traces import BatchSeen
from penstock.errors import ActionFailed

USED = ProcessorTime(0.5, 1.5, 20.0)


def blocks(attached, alone, count=24):
    rates = {ATTACHED: attached, ALONE: alone}
    sides = [ATTACHED if first else ALONE for first in order(count)]
    return [Block(side, rates[side], 1000 / rates[side], 20, 50.0, 0.2) for side in sides]


def test_equal_blocks_have_a_ratio_of_one_and_meet_the_targets():
    found = report(blocks(500.0, 500.0))
    assert found.summary["throughput_ratio"] == pytest.approx(1.0)
    assert found.summary["latency_ratio"] == pytest.approx(1.0)
    assert found.met
    assert [row["system"] for row in found.results[:4]] == [ATTACHED, ALONE, ALONE, ATTACHED]


def test_two_percent_lost_are_measured_and_miss_both_targets():
    found = report(blocks(490.0, 500.0))
    assert found.summary["throughput_ratio"] == pytest.approx(0.98)
    assert [target.measured for target in found.targets] == pytest.approx([0.98, 500 / 490])
    assert [target.met for target in found.targets] == [False, False]


def test_where_noise_hides_one_per_cent_nothing_counts_as_measured():
    noisy = [
        Block(block.system, block.records_per_second * (1.2 if number % 3 else 1.0), 1.0, 20, 50.0, 0.2)
        for number, block in enumerate(blocks(500.0, 500.0))
    ]
    found = report(noisy)
    assert found.summary["throughput_ratio_low"] < 0.99 < found.summary["throughput_ratio_high"]
    assert found.targets[0].measured is None
    assert not found.met
    assert any(note.startswith("throughput: not measured") for note in found.notes)


def test_four_blocks_are_never_enough_to_judge_even_when_they_look_good():
    found = report(blocks(550.0, 500.0, count=4))
    assert [target.measured for target in found.targets] == [None, None]
    assert found.to_json()["summary"]["throughput_ratio_low"] is None


def steady():
    return [BatchSeen(float(start), 1.0, 100, 0) for start in range(-1, 12)]


def test_a_block_counts_whole_batches_only_and_all_of_them():
    slow = [BatchSeen(9.0, 1.9, 100, 0) if batch.start == 9.0 else batch for batch in steady()]
    found = block_of(Span(ATTACHED, 0.5, 10.95, USED), [batch for batch in slow if batch.start != 10.0])
    assert (found.batches, found.batch_seconds) == (9, pytest.approx(9.9 / 9))
    assert found.records_per_second == pytest.approx(900 / 9.9)


def test_processor_time_is_taken_for_a_million_records_and_for_the_driver():
    found = block_of(Span(ATTACHED, 0.0, 10.0, USED), steady())
    # 100 records a second for 10 s, and 20 s of all processors
    assert found.processor_seconds == pytest.approx(20.0 / 1000 * 1e6)
    assert found.driver_share == pytest.approx(0.2)


def test_a_block_without_batches_is_said_to_be_one():
    with pytest.raises(ActionFailed, match="only 0 batches"):
        block_of(Span(ALONE, 0.0, 10.0, USED), [])


def test_the_time_of_this_process_is_counted_once_and_grows():
    before = processor_time(os.getpid())
    began = time.process_time()
    while time.process_time() < began + 0.2:
        math.sqrt(2.0)
    used = processor_time(os.getpid()).since(before)
    assert 0.1 < used.python == used.driver_jvm <= used.everything
