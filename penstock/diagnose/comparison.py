"""Compare two runs of the same job: what takes more or less of the critical path, in seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.diagnose.causes import CAUSES, share_by_cause
from penstock.diagnose.diagnosis import Diagnosis
from penstock.diagnose.path.summary import Summary
from penstock.diagnose.trace.driver_timeline import DRIVER
from penstock.units.figures import count_of, seconds

# A change below this share of the longer run is noise.
LEAST_CHANGE = 0.02
_STAGE = re.compile(r"^stage \d+: ")


@dataclass(frozen=True, slots=True)
class Difference:
    """Seconds of the critical path that something has in the other run and in this one."""

    name: str
    other_seconds: float
    seconds: float

    @property
    def more_seconds(self) -> float:
        """The seconds that this run has more."""
        return self.seconds - self.other_seconds


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The changes from another run to this one, the largest first; changes of causes add up."""

    application: str
    other: str
    total: Difference
    causes: list[Difference]
    operators: list[Difference]
    answer: str

    def to_json(self) -> dict[str, Any]:
        """Return the object of the command."""
        return asdict(self)


def compare_runs(this: Diagnosis, other: Diagnosis) -> RunComparison:
    """Compare a run with another; stages that do the same are taken together, whatever their numbers."""
    total = Difference("critical path", other.whole.length_us / 1e6, this.whole.length_us / 1e6)
    causes = _list_differences(_sum_causes(other.whole), _sum_causes(this.whole))
    operators = _list_differences(_sum_operators(other.whole), _sum_operators(this.whole))
    return RunComparison(
        application=this.application,
        other=other.application,
        total=total,
        causes=causes,
        operators=operators,
        answer=_describe(this, other, total, causes, operators),
    )


def _sum_causes(summary: Summary) -> dict[str, float]:
    length = summary.length_us / 1e6
    return {key: share * length for key, share in share_by_cause(summary).items()}


def _sum_operators(summary: Summary) -> dict[str, float]:
    found: dict[str, float] = {}
    for work, share in summary.work.items():
        if work.operator not in {"", DRIVER} and work.phase != "task launch":
            name = _STAGE.sub("", work.operator)
            found[name] = found.get(name, 0.0) + share * summary.length_us / 1e6
    return found


def _list_differences(other: Mapping[str, float], this: Mapping[str, float]) -> list[Difference]:
    names = dict.fromkeys([*this, *other])
    found = [Difference(name, other.get(name, 0.0), this.get(name, 0.0)) for name in names]
    return sorted(found, key=lambda one: -abs(one.more_seconds))


def _describe(
    this: Diagnosis,
    other: Diagnosis,
    total: Difference,
    causes: list[Difference],
    operators: list[Difference],
) -> str:
    took = f"{seconds(total.seconds)} instead of {seconds(total.other_seconds)}"
    least = LEAST_CHANGE * max(total.seconds, total.other_seconds)
    largest = causes[0] if causes else None
    if largest is None or abs(largest.more_seconds) < least:
        said = f"It took {took}: nothing on the critical path changed by {LEAST_CHANGE:.0%} or more."
    else:
        said = (
            f"It took {took}, {_describe_change(total)}. The largest change is {CAUSES[largest.name].noun}: "
        )
        said += f"{_describe_change(largest)}."
        if operators and CAUSES[largest.name].is_task_time and abs(operators[0].more_seconds) >= least:
            said += f" Of the operators, {operators[0].name} changed most: {_describe_change(operators[0])}."
    return said + _describe_failures(this, other)


def _describe_change(one: Difference) -> str:
    return f"{seconds(abs(one.more_seconds))} {'more' if one.more_seconds >= 0 else 'less'}"


def _describe_failures(this: Diagnosis, other: Diagnosis) -> str:
    now, before = (sum(one.failed.tasks.values()) if one.failed else 0 for one in (this, other))
    return f" {count_of(now, 'task')} failed instead of {before:,}." if now != before else ""
