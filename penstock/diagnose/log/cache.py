"""Follow the blocks of cached data: which were driven out of memory before anybody gave them back.

Spark writes updates of blocks only with `spark.eventLog.logBlockUpdates.enabled`, or into the metrics of
tasks with `spark.taskMetrics.trackUpdatedBlockStatuses`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.diagnose.log.application import Eviction, Fields
from penstock.diagnose.log.fields import read_amount, read_name

_BLOCK = re.compile(r"^rdd_(\d+)_\d+$")
_MOST = float(1 << 62)


class CachedBlocks:
    """The memory that each cached block holds so far, and what was evicted, by RDD."""

    def __init__(self, evictions: Mapping[int, Eviction] | None = None) -> None:
        self.evictions = dict(evictions or {})
        self._held: dict[int, dict[str, float]] = {}
        self._names: dict[int, str] = {}

    def read_names(self, rdds: Iterable[Fields]) -> None:
        """Keep the names of RDDs that are cached in memory."""
        for rdd in rdds:
            if (rdd.get("Storage Level") or {}).get("Use Memory"):
                self._names[int(rdd["RDD ID"])] = read_name(rdd.get("Name") or "")

    def update(self, event: Fields) -> None:
        """Read the event of one block."""
        told = event["Block Updated Info"]
        self._take(str(told["Block ID"]), told.get("Memory Size", 0), told.get("Disk Size", 0))

    def update_many(self, blocks: Iterable[Fields]) -> None:
        """Read the blocks that a task changed."""
        for block in blocks:
            status = block["Status"]
            self._take(str(block["Block ID"]), status.get("Memory Size", 0), status.get("Disk Size", 0))

    def forget(self, event: Fields) -> None:
        """Forget the blocks of an RDD that the program gave back."""
        self._held.pop(int(event["RDD ID"]), None)

    def _take(self, block: str, memory: float, disk: float) -> None:
        found = _BLOCK.match(block)
        if not found:
            return
        rdd, held = int(found[1]), read_amount(memory, _MOST)
        before = self._held.setdefault(rdd, {}).get(block, 0.0)
        self._held[rdd][block] = held
        if before > 0 and held == 0:
            known = self.evictions.get(rdd, Eviction(self._names.get(rdd, "")))
            to_disk = known.to_disk + (read_amount(disk, _MOST) > 0)
            self.evictions[rdd] = replace(
                known, blocks=known.blocks + 1, bytes=known.bytes + before, to_disk=to_disk
            )
