"""Service times, their spread, capacity curves and skew of paced operators."""

import time

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import BadInput
from penstock.workloads.paced_operator import PacedOperator, serve
from penstock.workloads.sentences import WORDS_PER_SENTENCE, vocabulary, word_counts
from penstock.workloads.service_time import ServiceTime
from penstock.workloads.source import LoadSource


def times(service, count=20_000):
    random = np.random.default_rng(1)
    return np.array([service.total(1, 1, random) for _ in range(count)])


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0])
def test_single_times_have_the_asked_for_mean_and_variation(variation):
    drawn = times(ServiceTime(0.01, variation))
    assert drawn.mean() == pytest.approx(0.01, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(variation, abs=0.03)


def test_many_records_vary_less_than_one():
    random = np.random.default_rng(2)
    sums = np.array([ServiceTime(0.01, 1.0).total(100, 1, random) for _ in range(2000)])
    assert sums.mean() == pytest.approx(1.0, rel=0.02)
    assert sums.std() == pytest.approx(0.1, rel=0.1)


def test_the_capacity_curve_is_the_universal_scalability_law():
    assert [ServiceTime(0.1).capacity(n) for n in (1, 2, 4)] == pytest.approx([10, 20, 40])
    crowded = ServiceTime(0.1, contention=0.1, coherence=0.01)
    assert crowded.capacity(4) == pytest.approx(40 / (1 + 0.3 + 0.12))
    assert crowded.capacity(30) < crowded.capacity(10)


def test_skew_is_the_share_of_one_instance_and_bounds_the_rate():
    load = PacedOperator("constant:1", ServiceTime(0.01), instances=4, skew=0.5)
    found = np.bincount([load.instance_of(number) for number in range(100_000)], minlength=4) / 100_000
    assert found[0] == pytest.approx(load.busiest_share(), abs=0.01)
    assert load.sustainable_rate() == pytest.approx(100 / 0.625)


def test_an_instance_takes_its_time_and_says_what_it_served():
    load = PacedOperator("constant:1", ServiceTime(0.002))
    columns = {"number": pa.array(range(50)), "instance": pa.array([3] * 50, pa.int32())}
    begun = time.monotonic()
    rows = [batch.to_pylist() for batch in serve(load)(iter([pa.RecordBatch.from_pydict(columns)]))]
    assert time.monotonic() - begun >= 0.1
    assert rows == [[{"instance": 3, "served": 50}]]


def test_an_empty_batch_is_served_at_once():
    load = PacedOperator("constant:1", ServiceTime(10.0))
    columns = {"number": pa.array([], pa.int64()), "instance": pa.array([], pa.int32())}
    (answer,) = serve(load)(iter([pa.RecordBatch.from_pydict(columns)]))
    assert answer.num_rows == 0


@pytest.mark.parametrize("skew", [0.2, 0.5, 0.8])
def test_skewed_sentences_repeat_one_word(skew):
    counts = word_counts(5000, seed=2, skew=skew)
    words = 5000 * WORDS_PER_SENTENCE
    assert sum(counts.values()) == words
    assert counts[vocabulary()[0]] / words == pytest.approx(skew, abs=0.01)
    source = LoadSource({"skew": str(skew), "seed": "2"})
    assert set(" ".join(source.content().batch(0, 20).column(1).to_pylist()).split()) <= set(counts)


def test_impossible_settings_are_refused():
    for bad in ({"seconds": -1}, {"seconds": 1, "contention": 2}, {"seconds": 1, "variation": -1}):
        with pytest.raises(BadInput):
            ServiceTime(**bad)
    with pytest.raises(BadInput):
        PacedOperator("constant:1", ServiceTime(1), skew=1.5)
    with pytest.raises(BadInput, match="skew"):
        LoadSource({"skew": "2"}).content()
