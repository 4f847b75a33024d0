"""A fleet in virtual time: three applications that publish windows, and a controller that decides for them.

Agents, transport, keys, admission, rounds and budget are the product's; the controller works in this process
what the Spark job does in its tasks, in the same order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.decide.policy import Policy
from penstock.decide.sage.settings import SageSettings
from penstock.errors import ActionFailed
from penstock.fleet.admission import Admission
from penstock.fleet.agent import FleetPolicy, Transport
from penstock.fleet.budget import FleetBudget
from penstock.fleet.decision import FleetDecision
from penstock.fleet.keys import FleetKey
from penstock.fleet.places import FleetDirectory
from penstock.fleet.records import move_back
from penstock.fleet.reporting import DirectoryTransport
from penstock.fleet.round import play_round, tabulate_decisions
from penstock.fleet.standby import LEASE_SECONDS
from penstock.fleet.state import empty_state, from_bytes, to_bytes
from penstock.journal.leading import Leadership
from penstock.journal.store import Journal
from penstock.settings.model import Settings
from penstock_lab.experiments.faults.disturbances import Disturbance
from penstock_lab.experiments.faults.matrix import (
    BROKER_AWAY,
    HUNG,
    INPUT_FAULTS,
    TWO_CONTROLLERS,
    TWO_DRIVERS,
)
from penstock_lab.experiments.faults.rows import Effects
from penstock_lab.experiments.faults.worlds.world import INTERVAL, GrowingWorld

KEY = FleetKey(bytes(range(32)))
NAMES = ("job-1", "job-2", "job-3")
CONF = {"spark.executor.memory": "1g", "spark.executor.cores": "2"}
HELD_UP_ROUNDS = 4
MORE = 2
"""Executors beyond the need that a backlog asks for, and that the manager's band then leaves alone."""


class FailingTransport:
    """A transport that reaches nobody while the broker is away."""

    refusal = ""

    def __init__(self, transport: Transport, fault: Disturbance) -> None:
        self._transport, self._fault = transport, fault

    def publish(self, record: Mapping[str, Any]) -> None:
        """Send a window, if there is a broker."""
        self._reach()
        self._transport.publish(record)

    def decisions(self, application: str) -> Sequence[FleetDecision]:
        """Return what was decided, if there is a broker."""
        self._reach()
        return self._transport.decisions(application)

    def _reach(self) -> None:
        if self._fault.is_on and self._fault.fault == BROKER_AWAY:
            raise ActionFailed("the broker takes no message")


class Member(GrowingWorld):
    """An application of the fleet: it does what the controller decides, within its own guardrails."""

    rate = 1000
    """High enough that its backlog grows in every window, which the controller's rule waits for."""

    def __init__(
        self, name: str, root: Path, journal: Journal, disturbance: Disturbance, between: Disturbance
    ) -> None:
        """`between` is the fault of what lies between agents and controller."""
        self.name, self._root, self._between = name, root, between
        super().__init__(journal, disturbance)

    def choose_policy(self, usual: Policy, settings: Settings) -> Policy:
        """Ask the controller; the usual policy tells what is needed."""
        directory = DirectoryTransport(self._root, KEY.for_application(self.name))
        transport = FailingTransport(directory, self._between)
        return FleetPolicy(self.name, transport, self.memory, usual, CONF)


class Controller:
    """The controller's rounds over the files that have come."""

    def __init__(self, root: Path, fault: Disturbance, leadership: Leadership) -> None:
        self.leadership = leadership
        self._windows, self._directory = root / "windows", FleetDirectory(root)
        self._admission, self._settings = Admission(KEY), SageSettings()
        self._budget = FleetBudget(self._directory)
        self._checkpoint = root / "state"
        self._batch, self._read = 0, set[str]()
        self._fault, self._held_up = fault, list[tuple[int, Path]]()

    def play(self, now: float) -> None:
        """Judge what is new, and write the decisions, while this one leads: that is asked of the journal."""
        if self.leadership.step(now) is None:
            return
        for read in self._admission.read_files(map(str, self._find_new()), now):
            if read.dead.num_rows:
                self._directory.write_dead(self._batch, read.dead)
            state = from_bytes(self._checkpoint.read_bytes()) if self._checkpoint.exists() else empty_state()
            result = play_round(state, move_back(read.windows, now), self._settings)
            self._checkpoint.write_bytes(to_bytes(result.state))
            decisions = self._admission.sign(tabulate_decisions(result, self._settings))
            if decisions.num_rows:
                self._directory.write_decisions(self._batch, self._budget.admit(self._batch, decisions))
        self._batch += 1

    def _find_new(self) -> list[Path]:
        found = sorted(path for path in self._windows.glob("*.jsonl") if path.name not in self._read)
        self._read |= {path.name for path in found}
        due = [path for at, path in self._held_up if at <= self._batch]
        self._held_up = [(at, path) for at, path in self._held_up if at > self._batch]
        if not self._fault.is_on:
            return due + found
        return due + [one for path in found for one in self._meddle(path)]

    def _meddle(self, path: Path) -> list[Path]:
        """Return what the fault makes of a file of the first member."""
        torn, doubled, late, reordered, hostile = INPUT_FAULTS
        fault, content = self._fault.fault, path.read_bytes()
        if fault not in INPUT_FAULTS or NAMES[0].encode() not in content:
            return [path]
        if fault == torn:
            path.write_bytes(content[: len(content) // 2])
        if fault == hostile:
            path.with_name(f"hostile-{path.name}").write_bytes(forge_lines(content))
            return [path.with_name(f"hostile-{path.name}"), path]
        if fault == late:
            self._held_up.append((self._batch + HELD_UP_ROUNDS, path))
            return []
        if fault == reordered:
            self._held_up.append((self._batch + 1 + self._batch % 2, path))
            return []
        return [path, path] if fault == doubled else [path]


def forge_lines(line: bytes) -> bytes:
    """Return lines that nobody in the fleet has written: no JSON, a foreign name, numbers without measure."""
    foreign = line.replace(NAMES[0].encode(), NAMES[1].encode())
    lines = [b"nonsense", b'{"application": "job-1"', foreign, b"\x00" * 100, b'{"a":' * 1000]
    return b"\n".join([*lines, line.replace(b'"end":', b'"end":1e308,"was":')])


class FleetWorld:
    """The fleet as one world: it has done what its members did."""

    def __init__(self, journal: Journal, disturbance: Disturbance) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="penstock-fleet-")
        self._root, self._fault = Path(self._place.name), disturbance
        (self._root / "windows").mkdir(mode=0o700)
        of_the_fleet = (*INPUT_FAULTS, HUNG, BROKER_AWAY)
        own = disturbance if disturbance.fault not in of_the_fleet else Disturbance()
        faults = (own, Disturbance(), Disturbance())
        names = (NAMES[0], NAMES[0], NAMES[2]) if disturbance.fault == TWO_DRIVERS else NAMES
        self.members = [
            Member(name, self._root, journal, fault, disturbance)
            for name, fault in zip(names, faults, strict=True)
        ]
        holders = ("first", "second") if disturbance.fault == TWO_CONTROLLERS else ("first",)
        self.controllers = [
            Controller(self._root, disturbance, Leadership(journal.leases, "fleet", holder, LEASE_SECONDS))
            for holder in holders
        ]
        self.now = 0
        self.sizes: list[object] = []

    @property
    def done(self) -> int:
        """How many actions were begun."""
        return sum(len(member.hand.done) for member in self.members)

    @property
    def is_paused(self) -> bool:
        """Whether a member gave up."""
        return any(member.loop.paused is not None for member in self.members)

    def tick(self, wall: float) -> None:
        """Let each loop come round, and the controller after every interval; one clock may be wrong."""
        for member in self.members:
            member.tick(wall if member is self.members[0] else float(self.now))
        if self.now % INTERVAL != INTERVAL - 1 or self._fault.hangs:
            return
        frozen = self._fault.is_on and self._fault.fault == TWO_CONTROLLERS
        for controller in self.controllers[1:] if frozen else self.controllers:
            controller.play(float(self.now))

    def pass_second(self) -> None:
        """Let a second pass everywhere."""
        for member in self.members:
            member.pass_second()
        self.now += 1
        self.sizes.append(tuple(member.size() for member in self.members))

    def is_right(self, size: object, usual: object) -> bool:
        """Tell whether all members have what they need, or what a backlog has asked for beyond it."""
        assert isinstance(size, tuple) and isinstance(usual, tuple)
        return all(need <= held <= need + MORE for held, need in zip(size, usual, strict=True))

    def output(self) -> object:
        """Return what each member has read."""
        return tuple(member.output() for member in self.members)

    def effects(self, journal: Journal) -> Effects:
        """Tell what was intended, done and left open in all members, numbered apart."""
        all_ = [member.effects(journal) for member in self.members]

        def number(which: str) -> tuple[int, ...]:
            return tuple(
                1000 * place + one for place, each in enumerate(all_) for one in getattr(each, which)
            )

        return Effects(number("intended"), number("done"), sum(each.left_open for each in all_))

    def close(self) -> None:
        """Remove its files."""
        self._place.cleanup()
