"""Policies side by side on one experiment: as data, as tables in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.dataflow.metrics import Integers
from penstock.journal.records import ActionRecord
from penstock.simulate.experiment import Experiment
from penstock.simulate.measures import Measures, measure
from penstock.simulate.oracle import least_instances
from penstock.simulate.run import Run, simulate
from penstock.view import figures

MOST_SHOWN = 20
"""Actions of one policy that the terminal shows; JSON and the page have all."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What each policy did, on the same load and with the same noise."""

    experiment: Experiment
    seed: int
    oracle: Integers
    runs: tuple[tuple[Run, Measures], ...]

    def to_json(self) -> dict[str, Any]:
        """One JSON-ready object."""
        return {
            "scenario": self.experiment.name,
            "seed": self.seed,
            "seconds": self.experiment.seconds,
            "oracle": self._oracle_range(),
            "policies": [_plain(run, measures) for run, measures in self.runs],
        }

    def shown(self) -> RenderableType:
        """The figures of all policies, and below what each of them did and why."""
        parts: list[RenderableType] = [self._figures()]
        for run, _ in self.runs:
            parts += ["", _actions(run)]
            parts += [
                Text(f"{run.policy}: {error} (×{count})", "yellow") for error, count in run.errors.items()
            ]
        return Group(*parts)

    def _figures(self) -> Table:
        lasts = figures.seconds(self.experiment.seconds)
        title = f"{self.experiment.name}, {lasts}, seed {self.seed}"
        # eleven columns fit into 80 characters if they stand close
        table = Table(title=title, box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
        for number, heading in enumerate(HEADINGS):
            # where they do not fit, half a figure would be a wrong one
            table.add_column(heading, justify="left" if number == 0 else "right", overflow="fold")
        for run, measures in self.runs:
            table.add_row(run.policy, *figures_of(measures))
        return table

    def _oracle_range(self) -> dict[str, dict[str, int]]:
        low, high = self.oracle.min(axis=0).tolist(), self.oracle.max(axis=0).tolist()
        names = self.experiment.units
        return {name: {"least": a, "most": b} for name, a, b in zip(names, low, high, strict=True)}


HEADINGS = (
    *("policy", "steps", "flips", "over", "under", "short", "late"),
    *("p50", "p95", "p99", "backlog"),
)
EXPLAINED = (
    "over, under: slot-seconds above and below the oracle, as a share of the oracle's; short: time in which "
    "some operator had too few instances; late: time over the latency target; p50 to p99: latency of all "
    "seconds, or of single records where those are followed; backlog: the largest before the sources"
)


def compare(
    experiment: Experiment, policies: Iterable[str], seed: int, progress: Callable[[str], None]
) -> Comparison:
    """Run each policy on the experiment."""
    oracle = least_instances(experiment)
    runs: list[tuple[Run, Measures]] = []
    for policy in policies:
        progress(f"{experiment.name}: {policy}")
        run = simulate(experiment, policy, seed)
        runs.append((run, measure(run, oracle)))
    return Comparison(experiment, seed, oracle, tuple(runs))


def figures_of(measures: Measures) -> tuple[str, ...]:
    """A row under `HEADINGS`, without the policy."""
    oracle = measures.oracle_slot_seconds
    return (
        str(measures.steps),
        str(measures.flips),
        f"{measures.over_slot_seconds / oracle:.1%}",
        f"{measures.under_slot_seconds / oracle:.1%}",
        figures.seconds(measures.under_seconds),
        figures.seconds(measures.over_latency_target_seconds),
        figures.seconds(measures.p50_latency_seconds),
        figures.seconds(measures.p95_latency_seconds),
        figures.seconds(measures.p99_latency_seconds),
        figures.count(measures.largest_backlog_records),
    )


def changed(action: ActionRecord) -> str:
    """From what to what, for the operators that change."""
    before = action.before
    pairs = [(name, before.get(name, 0), count) for name, count in action.planned.items()]
    return ", ".join(f"{name} {old} → {new}" for name, old, new in pairs if old != new)


def passed(seconds: float) -> str:
    """Virtual time since the start: 1:02:30."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _actions(run: Run) -> RenderableType:
    if not run.actions:
        last = run.decisions[-1].reason if run.decisions else "nothing was decided"
        return Text(f"{run.policy}: no action; in the end: {last}")
    table = Table("at", run.policy, "why", box=None, header_style="dim")
    for action in run.actions[:MOST_SHOWN]:
        table.add_row(passed(action.intended_at), Text(changed(action)), Text(action.reason))
    left = len(run.actions) - MOST_SHOWN
    if left > 0:
        table.add_row("", Text(f"and {left} more"), Text("--json and --html have all of them"))
    return table


def _plain(run: Run, measures: Measures) -> dict[str, Any]:
    last: Sequence[int] = np.asarray(run.held[-1]).tolist()
    final: Mapping[str, int] = dict(zip(run.experiment.units, last, strict=True))
    return {
        "policy": run.policy,
        **measures.to_json(),
        "final_parallelism": final,
        "actions": [_plain_action(action) for action in run.actions],
        "decisions": [
            {"at": note.first_at, "kind": note.kind, "reason": note.reason, "count": note.count}
            for note in run.decisions
        ],
        "errors": dict(run.errors),
    }


def _plain_action(action: ActionRecord) -> dict[str, Any]:
    return {
        "at": action.intended_at,
        "ended_at": action.ended_at,
        "status": action.status.value if action.status else None,
        "from": dict(action.before),
        "to": dict(action.planned),
        "reason": action.reason,
        "notes": list(action.notes),
        "measured": dict(action.measured) if action.measured else None,
    }
