"""Runs the parts of the report one after the other; a state file keeps finished ones, so a run can resume."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from penstock.errors import ActionFailed, BadInput
from penstock.fleet.files import write_whole
from penstock_lab.claims.claim import Judged, Verdict, complete_claims, to_plain
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, shorten_error

Done = Callable[[float], None]
"""Called now and then with the share of the whole that is done."""
UNMEASURED = "this run did not measure it; `penstock bench` does"


class PartStatus(Enum):
    """The fate of a part."""

    DONE = "done"
    FAILED = "failed"
    MISSING = "missing"
    LEFT = "left to the full run"


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One experiment with the claims over its rows."""

    name: str
    title: str
    shows: str
    """Figures and tables, or whose targets they are."""
    measure: Callable[[Extent, Progress], Measurement]
    judge: Callable[[Measurement], Judged]
    quick_seconds: float | None = 0.0
    """Seconds on two cores, roughly; None where it takes too long for a quick run."""
    full_seconds: float = 0.0
    bench: str = ""
    """Its name for `penstock bench`; empty if it is in the report only."""
    needs: tuple[str, ...] = ()
    """Modules without which it cannot run."""

    def run(self, extent: Extent, progress: Progress) -> tuple[Measurement, Judged]:
        """Measure once, then judge; a run without any row has failed."""
        measured = self.measure(extent, progress)
        if measured.failures and not measured.rows:
            raise ActionFailed("; ".join(measured.failures))
        return measured, complete_claims(measured, self.judge(measured))

    def estimate(self, quick: bool) -> float:
        """Estimate the seconds it takes on two cores; 0 if it will not run."""
        seconds = (self.quick_seconds or 0.0) if quick else self.full_seconds
        return seconds if self.runs(quick) else 0.0

    def runs(self, quick: bool) -> bool:
        """Return whether it will run: nothing is missing, and it is short enough for a quick run."""
        return not self.find_missing() and not (quick and self.quick_seconds is None)

    def find_missing(self) -> str:
        """Name what the part needs and is not installed; empty if nothing."""
        absent = [name for name in self.needs if not _is_installed(name)]
        return f"needs {' and '.join(absent)}, which this version does not have" if absent else ""


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """A part as the report shows it: run, failed, or missing with the reason."""

    name: str
    title: str
    shows: str
    status: PartStatus
    seconds: float
    quick: bool
    reason: str = ""
    result: Judged = field(default_factory=lambda: Judged(()))
    date: str = ""
    machine: str = ""
    """Date and machine of the run: a report may hold outcomes of earlier runs on other machines."""

    def serves(self, quick: bool) -> bool:
        """Return whether a run can use it: a finished one, and in a full run never a quick one."""
        return self.status is PartStatus.DONE and (quick or not self.quick)

    def to_json(self) -> dict[str, Any]:
        """Return one JSON-ready object."""
        plain: dict[str, Any] = to_plain(asdict(self))
        return {**plain, "result": self.result.to_json()}

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> PartOutcome:
        """Read what `to_json` wrote."""
        kept = {"status": PartStatus(plain["status"]), "result": Judged.from_json(plain["result"])}
        return PartOutcome(**{**plain, **kept})


@dataclass(frozen=True, slots=True)
class KeptOutcomes:
    """Outcomes on disk, by part, so that a run that was cut short goes on."""

    path: Path

    def read_outcomes(self) -> dict[str, PartOutcome]:
        """Return what is kept; nothing if there is no file."""
        try:
            plain = orjson.loads(self.path.read_bytes())
            return {one["name"]: PartOutcome.from_json(one) for one in plain["parts"]}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{self.path} is not a state file of evidence: {error}") from error

    def forget(self, names: Sequence[str] = ()) -> None:
        """Drop these parts, or all if none is named or the file is broken."""
        try:
            others = [one for name, one in self.read_outcomes().items() if name not in names] if names else []
        except BadInput:
            others = []
        if others:
            self.keep(others)
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"cannot forget {self.path}: {error.strerror}") from error

    def keep(self, outcomes: Sequence[PartOutcome]) -> None:
        """Write all to a new file, then rename it: a killed run leaves the old file or the new one."""
        write_whole(self.path, orjson.dumps({"parts": [one.to_json() for one in outcomes]}))


def run_parts(
    parts: Sequence[ReportPart],
    quick: bool,
    state: KeptOutcomes,
    progress: Progress,
    done: Done = lambda _: None,
) -> list[PartOutcome]:
    """Return the outcome of every part, including those kept from earlier runs of the same kind."""
    known = state.read_outcomes()
    # find out that the place cannot be written before half an hour is spent on a part
    state.keep(list(known.values()))
    kept = {name: one for name, one in known.items() if one.serves(quick)}
    clock = _Clock(parts, {part.name: part.estimate(quick) for part in parts if part.name not in kept})

    def tell(text: str) -> None:
        progress(f"{clock.describe_place()}: {text}")
        done(clock.find_share())

    for number, part in enumerate(parts):
        if part.name in kept:
            progress(f"{part.name}: kept from an earlier run")
            continue
        clock.begin(number)
        if part.runs(quick):
            progress(clock.describe_place())
        kept[part.name] = now = run_part(part, quick, tell)
        clock.end(now.seconds)
        done(clock.find_share())
        # a finished outcome stays when a later run of the part fails, for the next run that it serves
        if now.status is PartStatus.DONE or part.name not in known or not known[part.name].serves(True):
            known[part.name] = now
        state.keep(list(known.values()))
    return [kept[part.name] for part in parts]


def run_part(part: ReportPart, quick: bool, progress: Progress) -> PartOutcome:
    """Run one part; an error in it becomes its outcome, and the other parts go on."""
    begun = time.monotonic()

    def conclude(status: PartStatus, reason: str = "", result: Judged | None = None) -> PartOutcome:
        seconds = round(time.monotonic() - begun, 1)
        ran = {"date": tell_date(), "machine": describe_machine()}
        found = result or Judged(())
        return PartOutcome(part.name, part.title, part.shows, status, seconds, quick, reason, found, **ran)

    absent = part.find_missing()
    if absent:
        return conclude(PartStatus.MISSING, absent)
    if quick and part.quick_seconds is None:
        minutes = f"it takes about {part.full_seconds / 60:.0f} min"
        return conclude(PartStatus.LEFT, f"{minutes}: run it without --quick")
    try:
        result = _prepare_report(*part.run(Extent(quick, report=True), progress))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {shorten_error(str(error))}"
        return conclude(PartStatus.FAILED, f"{said} ({Path(where.filename).name}, line {where.lineno})")
    return conclude(PartStatus.DONE, result=result)


def _prepare_report(measured: Measurement, judged: Judged) -> Judged:
    """Say of targets that the report's shorter run did not measure that it did not."""
    claims = [
        replace(claim, verdict=Verdict.NOT_COMPARABLE, why=claim.why or UNMEASURED)
        if claim.target and claim.measured is None
        else claim
        for claim in judged.claims
    ]
    return replace(judged, claims=claims, notes=[*measured.notes, *judged.notes])


def tell_date() -> str:
    """Return the date, in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def describe_machine() -> str:
    """Describe the machine and the versions that figures are taken with."""
    versions = f"Spark {version('pyspark')}, Penstock {version('penstock')}"
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {versions}"


class _Clock:
    """Time left: the parts' estimates, corrected by how long earlier parts took against theirs."""

    def __init__(self, parts: Sequence[ReportPart], estimates: Mapping[str, float]) -> None:
        self._parts, self._estimates = parts, estimates
        self._number, self._begun = 0, time.monotonic()
        self._expected = self._taken = self._present = 0.0

    def begin(self, number: int) -> None:
        """Begin the part of this number."""
        self._number, self._begun = number, time.monotonic()
        self._present = self._estimates[self._parts[number].name]

    def end(self, seconds: float) -> None:
        """End the present part after so many seconds."""
        self._expected += self._present
        self._taken += seconds
        self._present = 0.0

    def describe_place(self) -> str:
        """Name the present part and the time left for all."""
        present, *later = [self._estimates.get(part.name, 0.0) for part in self._parts[self._number :]]
        pace, gone = self._find_pace(), time.monotonic() - self._begun
        left = max(present * pace - gone, 0.0) + sum(later) * pace
        which = f"part {self._number + 1} of {len(self._parts)}, {self._parts[self._number].name}"
        if left < 1:
            return f"{which}, takes longer than estimated"
        said = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
        return f"{which}, about {said} left in all"

    def find_share(self) -> float:
        """Return the share done, counting the present part by the time it has run."""
        whole = sum(self._estimates.values())
        begun = min((time.monotonic() - self._begun) / self._find_pace(), self._present)
        return (self._expected + begun) / whole if whole else 1.0

    def _find_pace(self) -> float:
        # short parts come first and say little about the long ones: the estimates weigh a tenth of the whole
        weight = max(60.0, sum(self._estimates.values()) / 10)
        return (self._taken + weight) / (self._expected + weight)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
