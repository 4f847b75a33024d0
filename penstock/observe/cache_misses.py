"""Reads of RocksDB state that its block cache does not hold, and what to do about them (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.observe.progress import BatchProgress

BATCHES = 5
"""So many are taken together: the first batch after a start finds an empty cache and misses everything."""
LEAST_READS = 10_000.0
"""Fewer reads of blocks do not make a batch slow, whatever their share of misses."""
MOST_MISSES = 0.5
CACHE_KEY = "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB"
ROOM_KEY = "spark.executor.memoryOverhead"


def cache_advice(query: str, batches: Sequence[BatchProgress]) -> str | None:
    """A larger cache where most reads miss it, with the memory beside the heap that it takes."""
    recent = [batch for batch in batches if batch.executed][-BATCHES:]
    missed = sum(batch.cache_misses for batch in recent)
    reads = missed + sum(batch.cache_hits for batch in recent)
    if len(recent) < BATCHES or reads < LEAST_READS or missed <= MOST_MISSES * reads:
        return None
    return (
        f"query {query}: {missed / reads:.0%} of the block reads of its state in the last {BATCHES} batches "
        f"missed RocksDB's cache; recommended: a larger {CACHE_KEY}, and {ROOM_KEY} larger by as much "
        "for every bin that an executor holds"
    )
