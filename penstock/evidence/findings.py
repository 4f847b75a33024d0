"""What a part of the evidence found: published, ours, the baseline, and a verdict that is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from penstock.errors import ActionFailed


class Verdict(Enum):
    """How ours stands to what was published."""

    REPRODUCED = "reproduced"
    BETTER = "better"
    WORSE = "worse"
    NOT_COMPARABLE = "not comparable"


class Status(Enum):
    """What became of a part."""

    DONE = "done"
    FAILED = "failed"
    MISSING = "missing"
    LEFT = "left to the full run"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result; `published`, `ours` and `baseline` are numbers or short texts, None where there is none."""

    result: str
    published: float | str | None
    ours: float | str | None
    verdict: Verdict
    why: str = ""
    """Why it is not comparable, or what to know about the verdict."""
    baseline: float | str | None = None
    conditions: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines, steps, points, bars or boxes, in the shape of a paper's figure; a series is (name, x, y)."""

    title: str
    x: str
    y: str
    series: Sequence[tuple[str, Sequence[float | str], Sequence[float | None]]]
    bars: bool = False
    steps: bool = False
    """A value holds until the next one."""
    points: bool = False
    """Every value is marked, as where each is a batch of its own."""
    logarithmic: str = ""
    """Axes that are logarithmic: x, y or xy."""
    boxes: bool = False
    """How the values of each series are spread, whatever their x."""


@dataclass(frozen=True, slots=True)
class PartResult:
    """What a part gives when it has run."""

    findings: Sequence[Finding]
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """A part as the report shows it: run, failed, or missing with the reason."""

    name: str
    title: str
    shows: str
    status: Status
    seconds: float
    quick: bool
    reason: str = ""
    result: PartResult = field(default_factory=lambda: PartResult(()))
    date: str = ""
    machine: str = ""
    """When and on what it was run: a report may hold what earlier runs found, on other machines."""

    def to_json(self) -> dict[str, Any]:
        """One JSON-ready object; enums become their words, NaN and infinity null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> PartOutcome:
        """The outcome that `to_json` wrote."""
        result = plain["result"]
        findings = [Finding(**{**one, "verdict": Verdict(one["verdict"])}) for one in result["findings"]]
        charts = [
            Chart(**{**one, "series": [(name, x, y) for name, x, y in one["series"]]})
            for one in result["charts"]
        ]
        kept = PartResult(findings, charts, result["notes"])
        return PartOutcome(**{**plain, "status": Status(plain["status"]), "result": kept})


def judged(
    result: str,
    published: float,
    ours: float | None,
    *,
    lower_is_better: bool = True,
    tolerance: float = 0.1,
    baseline: float | str | None = None,
    conditions: str = "",
    why: str = "",
) -> Finding:
    """Reproduced within the tolerance, else better or worse; what could not be measured is not comparable."""
    if ours is None or math.isnan(ours):
        unmeasured = "it could not be measured in this run"
        return Finding(result, published, None, Verdict.NOT_COMPARABLE, unmeasured, baseline, conditions)
    if abs(ours - published) <= tolerance * abs(published):
        verdict = Verdict.REPRODUCED
    else:
        verdict = Verdict.BETTER if (ours < published) == lower_is_better else Verdict.WORSE
    return Finding(result, published, ours, verdict, why, baseline, conditions)


def steps_judged(result: str, published: int, steps: int, **more: Any) -> Finding:
    """Fewer steps are better, but none at all where some were needed is not."""
    if not steps and published:
        why = "it stayed at the size it began with"
        return Finding(result, published, steps, Verdict.WORSE, **{**more, "why": why})
    return judged(result, published, steps, tolerance=0, **more)


def agreed(result: str, published: str, ours: str, agrees: bool, **more: Any) -> Finding:
    """A claim in words: reproduced where it holds, worse where it does not."""
    return Finding(result, published, ours, Verdict.REPRODUCED if agrees else Verdict.WORSE, **more)


def incomparable(
    result: str, published: float | str | None, ours: float | str | None, why: str, **more: Any
) -> Finding:
    """Both shown, with the reason why they are not held against each other."""
    return Finding(result, published, ours, Verdict.NOT_COMPARABLE, why, **more)


def unmeasured(failures: Sequence[str], measured: int, conditions: str) -> list[Finding]:
    """A finding for each case that failed; where no case was measured the part has failed as a whole."""
    if failures and not measured:
        raise ActionFailed("; ".join(failures))
    failed = "a case that failed"
    return [incomparable(failed, None, None, failure, conditions=conditions) for failure in failures]


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
