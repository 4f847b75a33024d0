"""The fleet's controller at work over made-up members."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import orjson

from penstock.errors import PenstockError
from penstock.fleet.places import FleetDirectory, append_window
from penstock_lab.experiments.faults.regimes.regime import PATIENCE, Regime
from penstock_lab.experiments.faults.rows import Effects
from penstock_lab.ground.proving_ground import ProvingGround

APPLICATIONS = 12
GIB = 1024.0**3


class FleetRegime(Regime):
    """The fleet's controller over made-up members, of which every second one has too small a heap."""

    def __init__(self, ground: ProvingGround, place: Path) -> None:
        super().__init__(ground, place)
        self.root = place / "fleet"
        (self.root / "windows").mkdir(parents=True, mode=0o700)
        self.root.chmod(0o700)
        self._directory, self._round = FleetDirectory(self.root), 0

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the controller's job."""
        return self._directory.checkpoint

    def command(self) -> list[str]:
        """Run the controller."""
        master = f"spark.master={self.ground.url}"
        return ["penstock.cli", "fleet", "run", str(self.root), "--interval", "2s", "--conf", master]

    def await_work(self) -> None:
        """Wait until the first half of the members was decided for."""
        self.wait("decisions", lambda: self._publish("first") and self._has_decided("first"))

    def mark(self) -> None:
        """Begin to publish for the second half."""
        self._round = 0

    def has_recovered(self) -> bool:
        """Tell whether the second half was decided for."""
        return self._publish("second") and self._has_decided("second")

    def finish(self) -> bool:
        """End the controller; tell whether each hungry member was decided for once, and nobody else."""
        self.process.terminate()
        self.process.wait(PATIENCE)
        found = Counter((row["application"], row["rule"]) for row in self._directory.decisions())
        return found == Counter(
            {(name, "P1"): 1 for half in ("first", "second") for name in list_hungry(half)}
        )

    def effects(self) -> Effects:
        """Count a decision for one member twice as an action done twice."""
        names = sorted({row["application"] for row in self._directory.decisions()})
        done = tuple(names.index(row["application"]) for row in self._directory.decisions())
        return Effects(tuple(range(len(names))), done)

    def _publish(self, half: str) -> bool:
        self._round += 1
        end = time.time()
        for place in range(APPLICATIONS):
            name = f"{half}-{place}"
            record = describe_member(name, end, is_hungry=name in list_hungry(half))
            append_window(self.root / "windows", name, end, orjson.dumps(record))
        time.sleep(0.5)
        return True

    def _has_decided(self, half: str) -> bool:
        try:
            found = {row["application"] for row in self._directory.decisions()}
        except PenstockError:
            return False
        return list_hungry(half) <= found


def list_hungry(half: str) -> set[str]:
    """Return the members whose heap is too small."""
    return {f"{half}-{place}" for place in range(0, APPLICATIONS, 2)}


def describe_member(name: str, end: float, is_hungry: bool) -> dict[str, object]:
    """Return half a second of a member, calm but for its heap."""
    held = {"parallelism": 4, "heap_bytes": 6 * GIB, "overhead_bytes": GIB, "memory_fraction": 0.6}
    sizes = {f"held_{key}": value for key, value in {**held, "cores": 4, "task_cpus": 1}.items()}
    return {
        "application": name,
        "start": end - 0.5,
        "end": end,
        **sizes,
        "heap_used_bytes": (5.8 if is_hungry else 3.0) * GIB,
        "heap_committed_bytes": 5.9 * GIB,
        "gc_seconds": 0.01,
        "gc_count": 1,
        "memory_used_bytes": 6.65 * GIB,
        "cpu_used_cores": 2.4,
        "backlog_records": 100.0,
        "offered_per_second": 1000.0,
        "needed_parallelism": 4,
        "spilled_bytes": 0,
    }
