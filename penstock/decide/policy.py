"""Policies, and the proposals that they may make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from penstock.dataflow.costs.foresight import Outlook
from penstock.dataflow.moves import Move, Plan
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow

HELD_UTILISATION = "held_utilisation_ratio"
"""Figure of a proposal: predicted utilisation of the held size."""
UTILISATION = "utilisation_ratio"
"""Figure of a proposal: predicted utilisation of the proposed size."""
HELD_LOAD = "held_load_ratio"
"""Figure of a proposal: the share of what the held size carries that the offered rate uses."""

PLANNED_RISK = "planned_risk_ratio"
"""Figure of a proposal: the risk of being short that it was made for. It has weighed noise, delay and the
price of a change itself, so it is neither taken together with others nor delayed."""

IDLE_SECONDS = "idle_seconds"
"""Figure of a proposal: for how long no source has offered anything."""

SEEN_EXECUTORS = "seen_executors"
"""Figure of a proposal: the largest size at which the costs were seen that it rests on."""

BINS = "bins"
"""The unit of a MoveState: state partitions that change their worker."""


@dataclass(frozen=True, slots=True)
class ExpectedEffect:
    """The effect that a proposal is expected to have; compared later with what happened.

    `figures` are named numbers with their unit in the name, e.g. batch_seconds, utilisation_ratio.
    """

    summary: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave the application as it is, or with `stands`, as the policy's last decision wants it.

    The manager takes several answers in a row together, so a policy that decides less often than it is asked
    would never get its way if its answers between two decisions did not say that the last one stands.
    """

    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)
    outlooks: tuple[Outlook, ...] = field(default=(), compare=False, repr=False)
    """The basis for foreseeing other sizes, where costs were fitted."""
    stands: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Change parallelism: operator → instances, or {EXECUTORS: n} with shared slots."""

    parallelism: Mapping[str, int]
    reason: str
    expected: ExpectedEffect
    exact: Mapping[str, float] = field(default_factory=dict)
    """The un-rounded need per unit, before rounding up to whole instances or executors."""
    outlooks: tuple[Outlook, ...] = field(default=(), compare=False, repr=False)

    @property
    def planned(self) -> Mapping[str, int]:
        """The size that should be there afterwards, by unit."""
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
    """Move state bins between workers, as the plans say, one plan a query."""

    plans: tuple[Plan, ...]
    reason: str
    expected: ExpectedEffect

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of all plans."""
        return tuple(move for plan in self.plans for move in plan.moves)

    @property
    def planned(self) -> Mapping[str, int]:
        """The number of bins that should have moved afterwards."""
        return {BINS: len(self.moves)}

    @property
    def exact(self) -> Mapping[str, float]:
        """Nothing is rounded here."""
        return {}


Proposal: TypeAlias = Hold | Scale | Resize | MoveState
Action: TypeAlias = Scale | MoveState
"""Proposals that an actuator performs while the application runs."""


class Policy(Protocol):
    """Makes a proposal of a window; may keep what it has learned, never reads a clock."""

    @property
    def name(self) -> str:
        """The name by which `--policy` finds it."""

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Say what size the application should have, judging by this window."""


@runtime_checkable
class Watcher(Protocol):
    """A policy that also wants the windows about which it is not asked, such as those of a change."""

    def watch(self, window: ApplicationWindow) -> None:
        """Learn from a window; nothing is proposed."""


@runtime_checkable
class Learner(Protocol):
    """A policy whose knowledge outlives the driver: plain data out, and in again; both are bounded."""

    @property
    def memory_kind(self) -> str:
        """The kind under which the journal keeps its memories."""

    def learned(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what is worth keeping, by a key that means the same in the next run."""

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up what an earlier run has learned; return what could not be used, and why."""
