"""The scoring of payments: real computing, the same for the same payment."""

import numpy as np
import pyarrow as pa
import pytest

from penstock_lab.workloads.scoring import SHOPS, SUSPICIOUS, choose_layers, make_step, score_payments


def test_a_payment_has_the_same_score_in_whatever_batch_it_comes():
    numbers = np.arange(3000, dtype=np.uint64)
    whole = score_payments(numbers, 5)
    parts = [score_payments(part, 5) for part in np.array_split(numbers, 7)]
    assert np.concatenate(parts) == pytest.approx(whole)
    assert 0.02 < (whole > SUSPICIOUS).mean() < 0.9, "some are suspicious and some are not"


def test_the_signal_does_not_fade_with_many_layers():
    scores = score_payments(np.arange(500, dtype=np.uint64), 400)
    assert 0.02 < (scores > SUSPICIOUS).mean() < 0.9


def test_a_step_names_shops_and_marks_suspicious_payments():
    numbers = np.arange(1, 2502, dtype=np.int64)
    batches = [pa.RecordBatch.from_arrays([pa.array(numbers)], names=["number"])]
    done = pa.Table.from_batches(make_step(3)(iter(batches)))
    assert done.column("shop").to_pylist() == [number % SHOPS for number in numbers.tolist()]
    expected = score_payments(numbers.astype(np.uint64), 3) > SUSPICIOUS
    assert done.column("suspicious").to_pylist() == expected.astype(int).tolist()


def test_more_time_is_more_layers():
    assert 1 <= choose_layers(1e-6) < choose_layers(1e-3)
