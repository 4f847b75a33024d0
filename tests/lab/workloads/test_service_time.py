"""Service times, their spread, capacity curves and skew of paced operators."""

import time

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import BadInput
from penstock_lab.workloads.paced import PacedOperator, ServiceTime, make_operator
from penstock_lab.workloads.records import WORDS_PER_SENTENCE, count_words, list_vocabulary
from penstock_lab.workloads.source import LoadSource


def times(service, count=20_000):
    random = np.random.default_rng(1)
    return np.array([service.draw_seconds(1, 1, random) for _ in range(count)])


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0])
def test_single_times_have_the_asked_for_mean_and_variation(variation):
    drawn = times(ServiceTime(0.01, variation))
    assert drawn.mean() == pytest.approx(0.01, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(variation, abs=0.03)


def test_many_records_vary_less_than_one():
    random = np.random.default_rng(2)
    sums = np.array([ServiceTime(0.01, 1.0).draw_seconds(100, 1, random) for _ in range(2000)])
    assert sums.mean() == pytest.approx(1.0, rel=0.02)
    assert sums.std() == pytest.approx(0.1, rel=0.1)


def test_the_capacity_curve_is_the_universal_scalability_law():
    assert [ServiceTime(0.1).find_slowdown(n) for n in (1, 2, 4)] == [1, 1, 1]
    crowded = ServiceTime(0.1, contention=0.1, coherence=0.01)
    assert crowded.find_slowdown(4) == pytest.approx(1 + 0.3 + 0.12)
    assert 30 / crowded.find_slowdown(30) < 10 / crowded.find_slowdown(10)


def test_an_instance_takes_its_time_and_says_what_it_served():
    load = PacedOperator("constant:1", ServiceTime(0.002))
    columns = {"number": pa.array(range(50)), "instance": pa.array([3] * 50, pa.int32())}
    begun = time.monotonic()
    rows = [batch.to_pylist() for batch in make_operator(load)(iter([pa.RecordBatch.from_pydict(columns)]))]
    assert time.monotonic() - begun >= 0.1
    assert rows == [[{"instance": 3, "served": 50}]]


def test_an_empty_batch_is_served_at_once():
    load = PacedOperator("constant:1", ServiceTime(10.0))
    columns = {"number": pa.array([], pa.int64()), "instance": pa.array([], pa.int32())}
    (answer,) = make_operator(load)(iter([pa.RecordBatch.from_pydict(columns)]))
    assert answer.num_rows == 0


@pytest.mark.parametrize("skew", [0.2, 0.5, 0.8])
def test_skewed_sentences_repeat_one_word(skew):
    counts = count_words(5000, seed=2, skew=skew)
    words = 5000 * WORDS_PER_SENTENCE
    assert sum(counts.values()) == words
    assert counts[list_vocabulary()[0]] / words == pytest.approx(skew, abs=0.01)
    source = LoadSource({"skew": str(skew), "seed": "2"})
    assert set(" ".join(source.make_content().batch(0, 20).column(1).to_pylist()).split()) <= set(counts)


def test_impossible_settings_are_refused():
    for bad in ({"seconds": -1}, {"seconds": 1, "contention": 2}, {"seconds": 1, "variation": -1}):
        with pytest.raises(BadInput):
            ServiceTime(**bad)
    with pytest.raises(BadInput):
        PacedOperator("constant:1", ServiceTime(1), skew=1.5)
    with pytest.raises(BadInput, match="skew"):
        LoadSource({"skew": "2"}).make_content()
