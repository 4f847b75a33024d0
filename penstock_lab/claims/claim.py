"""A claim: what was measured, its target or the published figure, and a verdict that is computed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from penstock.errors import BadInput
from penstock_lab.experiments.measurement import Measurement, Row

Figure = float | str | None
"""A number or a short text; None where there is none."""


class Verdict(Enum):
    """The relation of a measured figure to its target, or to what was published."""

    REPRODUCED = "reproduced"
    BETTER = "better"
    WORSE = "worse"
    NOT_COMPARABLE = "not comparable"
    MET = "met"
    NOT_MET = "not met"
    ILLUSTRATION = "illustration"
    """A success that could hardly have failed: it is shown, and counts for nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One result beside its target or beside the published figure."""

    name: str
    published: Figure
    measured: Figure
    verdict: Verdict
    why: str = ""
    """Why it is not comparable, or what to know about the verdict."""
    baseline: Figure = None
    conditions: str = ""
    target: str = ""
    """A comparison and a number, such as "<= 2"; empty where there is only a published figure."""
    figure: str = ""
    """The published figure or table that it is a result of; all its results count as one claim."""

    @property
    def counts(self) -> bool:
        """Whether it counts: what is only shown has no figure and no target, an illustration no verdict."""
        return bool(self.figure or self.target) and self.verdict is not Verdict.ILLUSTRATION

    @property
    def failed(self) -> bool:
        """Whether it came out worse than was published, or misses its target."""
        return self.verdict in (Verdict.WORSE, Verdict.NOT_MET)

    @property
    def met(self) -> bool:
        """Whether the target is met; a figure that was not measured does not meet it."""
        if not self.target or not isinstance(self.measured, int | float) or math.isnan(self.measured):
            return False
        compare, bound = _parse_target(self.target)
        return compare(float(self.measured), bound)

    def to_json(self) -> dict[str, Any]:
        """Return the claim as the report's JSON file has it."""
        plain: dict[str, Any] = to_plain(
            {_JSON_NAMES.get(key, key): one for key, one in asdict(self).items()}
        )
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Claim:
        """Read what `to_json` wrote."""
        names = {written: name for name, written in _JSON_NAMES.items()}
        values = {names.get(key, key): one for key, one in plain.items()}
        return Claim(**{**values, "verdict": Verdict(plain["verdict"])})

    @staticmethod
    def judge_target(name: str, target: str, measured: float | None, why: str = "") -> Claim:
        """Compare a figure with a target that Penstock sets itself."""
        _parse_target(target)
        claim = Claim(name, None, measured, Verdict.NOT_MET, why, target=target)
        return replace(claim, verdict=Verdict.MET) if claim.met else claim

    @staticmethod
    def judge_summary(figures: Mapping[str, Any], *targets: tuple[str, str, str]) -> list[Claim]:
        """Compare figures by (name, target, key); a figure that is missing does not meet its target."""
        return [Claim.judge_target(name, target, figures.get(key)) for name, target, key in targets]

    @staticmethod
    def judge_figure(
        name: str,
        published: float,
        measured: float | None,
        *,
        figure: str,
        lower_is_better: bool = True,
        tolerance: float = 0.1,
        why: str = "",
        **more: Any,
    ) -> Claim:
        """Judge a figure: reproduced within the tolerance, else better or worse; None is not comparable."""
        if measured is None or math.isnan(measured):
            unmeasured = "it could not be measured in this run"
            return Claim(name, published, None, Verdict.NOT_COMPARABLE, unmeasured, figure=figure, **more)
        if abs(measured - published) <= tolerance * abs(published):
            verdict = Verdict.REPRODUCED
        else:
            verdict = Verdict.BETTER if (measured < published) == lower_is_better else Verdict.WORSE
        return Claim(name, published, measured, verdict, why, figure=figure, **more)

    @staticmethod
    def judge_steps(name: str, published: int, steps: int, *, figure: str, **more: Any) -> Claim:
        """Judge steps: fewer are better, but none at all where some were needed is worse."""
        if not steps and published:
            why = "it stayed at the size it began with"
            return Claim(name, published, steps, Verdict.WORSE, figure=figure, **{**more, "why": why})
        return Claim.judge_figure(name, published, steps, figure=figure, tolerance=0, **more)

    @staticmethod
    def judge_statement(
        name: str, published: str, measured: str, holds: bool, *, figure: str, doubt: str = "", **more: Any
    ) -> Claim:
        """Judge a statement in words: reproduced where it holds, else worse; a doubt leaves it open."""
        if doubt:
            return Claim.show_beside(name, published, measured, figure=figure, **{**more, "why": doubt})
        verdict = Verdict.REPRODUCED if holds else Verdict.WORSE
        return Claim(name, published, measured, verdict, figure=figure, **more)

    @staticmethod
    def show_beside(name: str, published: Figure, measured: Figure, why: str, **more: Any) -> Claim:
        """Show both figures with the reason why they are not compared."""
        return Claim(name, published, measured, Verdict.NOT_COMPARABLE, why, **more)

    def illustrate(self, why: str) -> Claim:
        """Take a success whose input makes it likely out of the count; a failure still counts."""
        if self.verdict not in (Verdict.REPRODUCED, Verdict.BETTER):
            return self
        return replace(self, verdict=Verdict.ILLUSTRATION, why=why)


_JSON_NAMES = {"name": "result", "measured": "ours"}
Series = tuple[str, Sequence[float | str], Sequence[float | None]]
"""Name, x and y."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines, steps, points, bars or boxes, in the shape of a paper's figure."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    bars: bool = False
    steps: bool = False
    """A value holds until the next one."""
    points: bool = False
    """Mark every value, such as a batch."""
    logarithmic: str = ""
    """Axes that are logarithmic: x, y or xy."""
    boxes: bool = False
    """Draw the spread of each series, whatever its x."""

    @staticmethod
    def group_rows(
        rows: Iterable[Row], x: Callable[[Row], float | str], y: Callable[[Row], float | None]
    ) -> list[Series]:
        """Return one series for each system of these rows."""
        systems: dict[str, list[Row]] = {}
        for row in rows:
            systems.setdefault(row["system"], []).append(row)
        return [
            (system, [x(row) for row in mine], [y(row) for row in mine]) for system, mine in systems.items()
        ]


@dataclass(frozen=True, slots=True)
class Judged:
    """The claims over one experiment's rows, with charts and notes for the reader."""

    claims: Sequence[Claim]
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = ()
    published: Mapping[str, Any] = field(default_factory=dict)
    """Figures of the papers, by the names that `penstock bench` gives them."""

    @property
    def targets(self) -> list[Claim]:
        """The claims that have a target."""
        return [claim for claim in self.claims if claim.target]

    def to_json(self) -> dict[str, Any]:
        """Return what the report keeps."""
        findings = [claim.to_json() for claim in self.claims]
        charts = [asdict(chart) for chart in self.charts]
        return {"findings": findings, "charts": to_plain(charts), "notes": list(self.notes)}

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Judged:
        """Read what `to_json` wrote."""
        charts = [
            Chart(**{**one, "series": [(name, x, y) for name, x, y in one["series"]]})
            for one in plain["charts"]
        ]
        return Judged([Claim.from_json(one) for one in plain["findings"]], charts, plain["notes"])


MOST_SETTINGS = 3
"""Rows of more different settings than these are told by the names of the settings."""
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}


def _parse_target(target: str) -> tuple[Callable[[float, float], bool], float]:
    symbol, _, bound = target.partition(" ")
    try:
        return _COMPARISONS[symbol], float(bound)
    except (KeyError, ValueError):
        raise BadInput(f'the target {target!r} is not a comparison and a number, such as "<= 2"') from None


def add_conditions(conditions: str, claims: Iterable[Claim]) -> list[Claim]:
    """Add how they were measured to claims beside published figures that do not say it yet."""
    return [
        claim if claim.target or claim.conditions else replace(claim, conditions=conditions)
        for claim in claims
    ]


def complete_claims(measured: Measurement, judged: Judged) -> Judged:
    """Add the cases that failed, and to each claim the settings that differ from the defaults."""
    claims, settings = list(judged.claims), _tell_settings(measured.rows)
    if measured.failures:
        count, why = float(len(measured.failures)), "; ".join(measured.failures)
        claims.append(Claim.judge_target("cases that could not be measured", "== 0", count, why))
    if settings:
        said = f"only shown with settings other than the defaults: {settings}"
        claims = [replace(one, conditions="; ".join(filter(None, (one.conditions, said)))) for one in claims]
    return replace(judged, claims=claims)


def _tell_settings(rows: Iterable[Row]) -> str:
    """Tell the settings of all rows, with the case of each where they differ; of many the names alone."""
    told: dict[str, str] = {}
    for row in rows:
        if row.get("settings"):
            told.setdefault(row["settings"], str(row.get("case", row.get("system", ""))))
    if len(told) > MOST_SETTINGS:
        pairs = [pair.partition("=")[0] for text in told for pair in text.split(", ")]
        return f"{', '.join(dict.fromkeys(pairs))}; each row has their values"
    return "; ".join(f"{name}: {text}" if len(told) > 1 else text for text, name in told.items())


def to_plain(value: Any) -> Any:
    """Convert a value to plain JSON types; NaN and infinity become null, since JSON has neither."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
