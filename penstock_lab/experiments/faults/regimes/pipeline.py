"""A pipeline of functions at work."""

from __future__ import annotations

import time
from pathlib import Path

from penstock_lab.experiments.faults.regimes.pipeline_job import NUMBERS, SQUARES, put_numbers, read_numbers
from penstock_lab.experiments.faults.regimes.regime import PATIENCE, Regime
from penstock_lab.ground.proving_ground import ProvingGround


class PipelineRegime(Regime):
    """A pipeline of two functions on file topics, one of them with state."""

    def __init__(self, ground: ProvingGround, place: Path) -> None:
        super().__init__(ground, place)
        self._put, self._marked = 0, 0
        put_numbers(place, 0)

    @property
    def checkpoint(self) -> Path:
        """The checkpoints of its functions."""
        return self.place / "checkpoints"

    def command(self) -> list[str]:
        """Run the pipeline's script."""
        return ["penstock_lab.experiments.faults.regimes.pipeline_job", str(self.place)]

    def await_work(self) -> None:
        """Wait until results come out at the end."""
        self.wait("results", lambda: self._put_more() and len(read_numbers(self.place, SQUARES)) > 0)

    def mark(self) -> None:
        """Note how many results there are."""
        self._marked = self._put

    def has_recovered(self) -> bool:
        """Tell whether all that was put in before and a part of what came after has come out."""
        found = len(set(read_numbers(self.place, SQUARES)))
        return self._put_more() and found > self._count(self._marked)

    def finish(self) -> bool:
        """Wait for the rest; tell whether every number has come out, and none twice."""
        wanted = self._count(self._put + 1)
        self.wait("the rest", lambda: len(set(read_numbers(self.place, SQUARES))) >= wanted)
        (self.place / "stop").touch()
        self.has_failed = self.process.wait(PATIENCE) != 0
        return sorted(read_numbers(self.place, SQUARES)) == sorted(read_numbers(self.place, NUMBERS))

    def _put_more(self) -> bool:
        self._put += 1
        put_numbers(self.place, self._put)
        time.sleep(0.5)
        return True

    def _count(self, files: int) -> int:
        return files * len(read_numbers(self.place, NUMBERS)) // (self._put + 1)
