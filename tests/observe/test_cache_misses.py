"""When a larger cache of RocksDB is recommended, and when not."""

from __future__ import annotations

import pytest

from penstock.observe.cache_misses import BATCHES, cache_advice
from penstock.observe.collector import ObservedBatch, QueryCollector
from penstock.observe.progress import BatchProgress, BatchTimeline


def a_batch(number: int, hits: float, misses: float, executed: bool = True) -> BatchProgress:
    timeline = BatchTimeline(0.0, 0.1, 1.0, 0.1, 1.2)
    counts = {"cache_hits": hits, "cache_misses": misses}
    return BatchProgress("run", number, 2.0 * number, timeline, 10.0, (), executed, 5, **counts)


@pytest.mark.parametrize(
    ("hits", "misses", "advised"),
    [(1_000, 9_000, True), (9_000, 1_000, False), (5_000, 5_000, False), (10, 990, False), (0, 0, False)],
)
def test_a_larger_cache_is_recommended_where_most_of_many_reads_miss(hits, misses, advised):
    found = cache_advice("words", [a_batch(number, hits, misses) for number in range(BATCHES)])
    assert (found is not None) is advised
    if found is not None:
        assert "query words: 90% of the block reads" in found
        assert "blockCacheSizeMB" in found and "spark.executor.memoryOverhead" in found


def test_a_cold_cache_alone_is_no_reason():
    cold = [a_batch(0, 0, 50_000)]
    assert cache_advice("words", cold) is None, "too few batches"
    warm = [*cold, *(a_batch(number, 40_000, 1_000) for number in range(1, BATCHES))]
    assert cache_advice("words", warm) is None
    idle = [a_batch(number, 0, 9_000, executed=False) for number in range(BATCHES)]
    assert cache_advice("words", idle) is None


def test_a_query_gives_its_advice_as_long_as_it_holds():
    words = QueryCollector("id", "words", "run", 2.0, frozenset())
    assert words.advice() == []
    for number in range(BATCHES):
        words.add(ObservedBatch(a_batch(number, 1_000, 9_000), (), 4), (), {})
    assert len(words.advice()) == 1 == len(words.advice())
    for number in range(BATCHES, 2 * BATCHES):
        words.add(ObservedBatch(a_batch(number, 9_000, 1_000), (), 4), (), {})
    assert words.advice() == []
