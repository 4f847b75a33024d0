"""Trials on the proving ground: real drivers on hosts with real limits, each struck by one fault.

A part runs as its users run it. The fault comes while the part is at work, and the output is compared with
the right answer, which is that of an undisturbed run.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from penstock.errors import ActionFailed
from penstock_lab.experiments.faults.disks import LoopDisk
from penstock_lab.experiments.faults.matrix import CHECKPOINT_FAULTS, FaultCell
from penstock_lab.experiments.faults.network import OwnNetwork
from penstock_lab.experiments.faults.regimes.fleet import FleetRegime
from penstock_lab.experiments.faults.regimes.jobs import LoopRegime, MigrationRegime, RestartRegime
from penstock_lab.experiments.faults.regimes.pipeline import PipelineRegime
from penstock_lab.experiments.faults.regimes.regime import Regime
from penstock_lab.experiments.faults.rows import Shown, make_row
from penstock_lab.experiments.measurement import Row
from penstock_lab.ground.hosts import GroundHost, HostShape
from penstock_lab.ground.proving_ground import ProvingGround

WORKERS = 3
HOST = HostShape(cores=1, cpu=0.3, memory_mb=1280)
LASTS = 20.0
"""Seconds that a fault lasts, where it does not pass at once."""
WITHIN = 180.0
"""Seconds after a fault in which all executors are back and batches end: Spark itself waits for two minutes
before it gives up an executor that does not answer."""
SLOW = 10.0
EATER = "import time; eaten = bytearray(3 << 30); time.sleep(60)"
WHERE = "proving ground"

REGIMES: Mapping[str, Callable[[ProvingGround, Path], Regime]] = {
    "loop": LoopRegime,
    "migration": MigrationRegime,
    "fleet": FleetRegime,
    "pipeline": PipelineRegime,
    "restart": RestartRegime,
}


class FaultGround:
    """The ground for all cells that need one; it is started with the first of them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._ground: ProvingGround | None = None
        self._count = 0

    def __enter__(self) -> FaultGround:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def try_cell(self, cell: FaultCell) -> Row:
        """Run a part once under a fault."""
        ground = self._start()
        self._count += 1
        place = self._directory / f"cell-{self._count}"
        place.mkdir(mode=0o700)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            regime = REGIMES[cell.part](ground, place)
            disk = None
            if cell.fault in CHECKPOINT_FAULTS:
                disk = stack.enter_context(LoopDisk(regime.checkpoint))
            stack.callback(regime.end)
            shown = self._run(regime, Strikes(regime, self._network, disk).find(cell.fault))
        return make_row(cell, Shown(True), [shown], WITHIN, WHERE)

    def _start(self) -> ProvingGround:
        if self._ground is None:
            with ExitStack() as stack:
                self._network = stack.enter_context(OwnNetwork())
                name = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-faults-"))
                self._directory = Path(name)
                self._ground = stack.enter_context(ProvingGround(WORKERS, HOST))
                self._stack = stack.pop_all()
        return self._ground

    def _run(self, regime: Regime, strike: Callable[[], None]) -> Shown:
        regime.start()
        regime.await_work()
        strike()
        mended = time.monotonic()
        regime.await_recovery(WITHIN)
        recovered = time.monotonic() - mended
        equal = regime.finish()
        return Shown(equal, regime.effects(), is_alive=not regime.has_failed, seconds_to_recover=recovered)


class Strikes:
    """The faults of the ground, each over when its call returns."""

    def __init__(self, regime: Regime, network: OwnNetwork, disk: LoopDisk | None) -> None:
        self._regime, self._network, self._disk = regime, network, disk

    def find(self, fault: str) -> Callable[[], None]:
        """Return what a fault does."""
        faults: Mapping[str, Callable[[], None]] = {
            "executor killed": self._kill_executor,
            "executor frozen": self._freeze_executor,
            "executor slow": self._slow_executor,
            "executor out of memory": self._eat_memory,
            "driver killed": self._kill_driver,
            "driver frozen": lambda: self._regime.freeze(LASTS),
            "network of a host cut": self._cut_network,
            "network of a host slow": lambda: self._network.disturb(self._find_host().address, LASTS),
            "checkpoint slow": self._slow_checkpoint,
            "checkpoint full": self._fill_checkpoint,
        }
        if fault not in faults:
            raise ActionFailed(f"nobody has written how to try {fault!r} on the ground")
        return faults[fault]

    def _find_host(self) -> GroundHost:
        """Return a host on which an executor of the part runs."""
        for host in self._regime.ground.hosts:
            if host.executors():
                return host
        raise ActionFailed("no host has an executor to strike")

    def _kill_executor(self) -> None:
        self._find_host().kill_executors()

    def _freeze_executor(self) -> None:
        host = self._find_host()
        host.pause()
        time.sleep(LASTS)
        host.resume()

    def _slow_executor(self) -> None:
        host = self._find_host()
        host.limit(at_once=True)
        host.slow_down(SLOW)
        time.sleep(LASTS)
        host.slow_down(1.0)

    def _eat_memory(self) -> None:
        """Let a process in the host's group take more than there is, until the kernel kills for it."""
        host = self._find_host()
        kills = host.describe()["memory_kills"]
        host.run_beside(("python3", "-c", EATER))
        until = time.monotonic() + 3 * LASTS
        while host.describe()["memory_kills"] == kills:
            if time.monotonic() > until:
                raise ActionFailed("the kernel has killed nothing for memory")
            time.sleep(0.2)
        host.kill_executors()

    def _kill_driver(self) -> None:
        self._regime.kill_driver()
        self._regime.start_again()

    def _cut_network(self) -> None:
        address = self._find_host().address
        self._network.cut(address)
        time.sleep(LASTS)
        self._network.join(address)

    def _slow_checkpoint(self) -> None:
        assert self._disk is not None
        self._disk.slow_down(LASTS)

    def _fill_checkpoint(self) -> None:
        """Fill the disk until the query has noticed, then give the room back.

        Spark ends a query that cannot write its checkpoint, so whoever watches the job starts it again.
        """
        assert self._disk is not None
        self._disk.fill()
        time.sleep(LASTS)
        self._disk.empty()
        self._regime.start_if_ended()
