"""The sizes of a pipeline outlive its process: the next run, or the next leader, begins with them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import JournalUnavailable
from penstock.pipeline.board import Board
from penstock.remembering import Memories

log = logging.getLogger(__name__)

KIND = "pipeline sizes"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Function → instances, and those among them that were set by hand."""

    wanted: Mapping[str, int] = field(default_factory=dict)
    pinned: Mapping[str, int] = field(default_factory=dict)


class SizeMemory:
    """Keeps what changes; a journal that fails costs the memory, never the pipeline."""

    def __init__(self, memories: Memories, owner: str) -> None:
        self._memories, self._owner = memories, owner
        self._kept: dict[str, dict[str, object]] = {}

    def recall(self) -> Sizes:
        """What the run before had at its end."""
        try:
            found = self._memories.recall(self._owner, KIND)
        except JournalUnavailable as error:
            log.warning("%s: the sizes of the last run are not known: %s", self._owner, error)
            return Sizes()
        sizes = {name: body["instances"] for name, body in found.items() if _is_whole(body.get("instances"))}
        return Sizes(sizes, {name: size for name, size in sizes.items() if found[name].get("pinned") is True})

    def keep(self, now: float, board: Board) -> None:
        """Write down what differs from the last time."""
        pinned = board.pinned()
        for name, size in board.wanted().items():
            body: dict[str, object] = {"instances": size, "pinned": name in pinned}
            if self._kept.get(name) != body:
                try:
                    self._memories.remember(now, self._owner, KIND, name, body)
                except JournalUnavailable:
                    return  # the loop says so, and the next call tries again
                self._kept[name] = body


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
