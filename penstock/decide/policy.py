"""What a policy is, and what it may propose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow

HELD_UTILISATION = "held_utilisation_ratio"
"""Figure of a proposal: predicted utilisation of the held size."""
UTILISATION = "utilisation_ratio"
"""Figure of a proposal: predicted utilisation of the proposed size."""

BINS = "bins"
"""The unit of a MoveState: state partitions that change their worker."""


@dataclass(frozen=True, slots=True)
class ExpectedEffect:
    """What a proposal is expected to bring; compared later with what happened.

    `figures` are named numbers with their unit in the name, e.g. batch_seconds, utilisation_ratio.
    """

    summary: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave the application as it is."""

    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scale:
    """Change parallelism: operator → instances, or {EXECUTORS: n} with shared slots."""

    parallelism: Mapping[str, int]
    reason: str
    expected: ExpectedEffect
    exact: Mapping[str, float] = field(default_factory=dict)
    """The un-rounded need per unit, before rounding up to whole instances or executors."""

    @property
    def planned(self) -> Mapping[str, int]:
        """What should be there afterwards, by unit."""
        return self.parallelism


@dataclass(frozen=True, slots=True)
class Resize:
    """Change settings that need new executors (memory, heap, cores): Spark key → value.

    `before` has the values that they replace, as far as they are known, `seen` the metrics that were judged.
    """

    settings: Mapping[str, str]
    reason: str
    expected: ExpectedEffect
    before: Mapping[str, str] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)

    @property
    def planned(self) -> Mapping[str, int]:
        """The settings that are whole numbers; those with units are in `settings`."""
        return {key: int(value) for key, value in self.settings.items() if value.isdecimal()}

    @property
    def exact(self) -> Mapping[str, float]:
        """Nothing is rounded here."""
        return {}


@dataclass(frozen=True, slots=True)
class MoveState:
    """Move state bins between workers: (bin, from, to), each bin at most once.

    `plans` say in which batches and how, one plain plan a query, as `penstock.migrate` writes them.
    """

    moves: tuple[tuple[str, str, str], ...]
    reason: str
    expected: ExpectedEffect
    plans: tuple[Mapping[str, Any], ...] = ()

    @property
    def planned(self) -> Mapping[str, int]:
        """How many bins should have moved afterwards."""
        return {BINS: len(self.moves)}

    @property
    def exact(self) -> Mapping[str, float]:
        """Nothing is rounded here."""
        return {}


Proposal: TypeAlias = Hold | Scale | Resize | MoveState
Action: TypeAlias = Scale | MoveState
"""What an actuator performs while the application runs."""


class Policy(Protocol):
    """Values in, a proposal out; may keep what it has learned, never reads a clock."""

    @property
    def name(self) -> str:
        """The name by which `--policy` finds it."""

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Say what size the application should have, judging by this window."""


@runtime_checkable
class Learner(Protocol):
    """A policy whose knowledge outlives the driver: plain data out, and in again; both are bounded."""

    @property
    def memory_kind(self) -> str:
        """What its memories are kept as in the journal."""

    def learned(self) -> Mapping[str, Mapping[str, Any]]:
        """What is worth keeping, by a key that means the same in the next run."""

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up what an earlier run has learned; the answer says what could not be used, and why."""
