"""Runs parts one after the other; finished ones are kept in a state file, so that a run can be resumed."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import orjson

from penstock.errors import ActionFailed, BadInput
from penstock.evidence.findings import PartOutcome, PartResult, Status

Progress = Callable[[str], None]
Done = Callable[[float], None]
"""Told now and then which share of the whole is done."""

MOST_LINES, MOST_CHARACTERS = 3, 500
"""Of an error: one from Java has its cause in the second line."""
_OF_A_STACK = ("at ", "...", "File ", "Traceback")


@dataclass(frozen=True, slots=True)
class Part:
    """One result of a paper and how to get it here."""

    name: str
    title: str
    shows: str
    """Which figures and tables."""
    run: Callable[[bool, Progress], PartResult]
    quick_seconds: float | None = 0.0
    """Seconds that it takes on two cores, roughly; None where it takes too long for a quick run."""
    full_seconds: float = 0.0
    needs: tuple[str, ...] = ()
    """Modules without which the part cannot run."""

    def estimate(self, quick: bool) -> float:
        """Seconds that it takes on two cores, roughly; none for what will not be run."""
        if self.missing():
            return 0.0
        return (self.quick_seconds or 0.0) if quick else self.full_seconds

    def runs(self, quick: bool) -> bool:
        """Whether there is anything to wait for: it may be missing, or too long for a quick run."""
        return not self.missing() and not (quick and self.quick_seconds is None)

    def missing(self) -> str:
        """What is not there that the part needs; empty if nothing."""
        absent = [name for name in self.needs if not _exists(name)]
        return f"needs {' and '.join(absent)}, which this version does not have" if absent else ""


@dataclass(frozen=True, slots=True)
class State:
    """Outcomes on disk, by part; a run that was cut short finds what it had finished."""

    path: Path

    def outcomes(self) -> dict[str, PartOutcome]:
        """What is kept; nothing if there is no file."""
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
        """Keep nothing of these parts any more, or of any if none is named, or if the file is broken."""
        try:
            others = [one for name, one in self.outcomes().items() if name not in names] if names else []
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
        """Write all anew, then rename: a run that is killed leaves the old file or the new one."""
        unfinished = self.path.with_name(f"{self.path.name}.unfinished")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(orjson.dumps({"parts": [one.to_json() for one in outcomes]}))
            unfinished.rename(self.path)
        except OSError as error:
            raise ActionFailed(f"cannot write {self.path}: {error.strerror}") from error


def run_parts(
    parts: Sequence[Part], quick: bool, state: State, progress: Progress, done: Done = lambda _: None
) -> list[PartOutcome]:
    """The outcome of every part, those of earlier runs of the same kind included."""
    known = state.outcomes()
    # a place that cannot be written is to be known before half an hour was spent on a part
    state.keep(list(known.values()))
    kept = {name: one for name, one in known.items() if still_good(one, quick)}
    clock = _Clock(parts, {part.name: part.estimate(quick) for part in parts if part.name not in kept})
    for number, part in enumerate(parts):
        if part.name in kept:
            progress(f"{part.name}: kept from an earlier run")
            continue
        clock.begin(number)
        if part.runs(quick):
            progress(clock.heading())
        kept[part.name] = outcome_of(part, quick, partial(_told, progress, done, clock))
        clock.end(kept[part.name].seconds)
        done(clock.share())
        # what a full run may not use is still there for the next quick one
        known[part.name] = _worth_more(known.get(part.name), kept[part.name])
        state.keep(list(known.values()))
    return [kept[part.name] for part in parts]


def _worth_more(before: PartOutcome | None, now: PartOutcome) -> PartOutcome:
    """A part that fails in a full run leaves what a quick one had found."""
    failed = now.status is not Status.DONE
    return before if before is not None and failed and before.status is Status.DONE else now


def _told(progress: Progress, done: Done, clock: _Clock, text: str) -> None:
    progress(f"{clock.heading()}: {text}")
    done(clock.share())


def still_good(outcome: PartOutcome, quick: bool) -> bool:
    """Failed and missing parts are tried again; a full result also serves a quick run, never the reverse."""
    return outcome.status is Status.DONE and (not outcome.quick or quick)


def outcome_of(part: Part, quick: bool, progress: Progress) -> PartOutcome:
    """Run one part; whatever goes wrong in it is its own outcome, and the others go on."""
    begun = time.monotonic()
    absent = part.missing()
    if absent:
        return _outcome(part, Status.MISSING, 0.0, quick, absent)
    if quick and part.quick_seconds is None:
        minutes = f"it takes about {part.full_seconds / 60:.0f} min"
        return _outcome(part, Status.LEFT, 0.0, quick, f"{minutes}: run it without --quick")
    try:
        result = part.run(quick, progress)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {in_short(str(error))}"
        reason = f"{said} ({Path(where.filename).name}, line {where.lineno})"
        return _outcome(part, Status.FAILED, time.monotonic() - begun, quick, reason)
    return _outcome(part, Status.DONE, time.monotonic() - begun, quick, result=result)


def in_short(text: str) -> str:
    """What went wrong without the stacks of Java and Python that come with it, on one line."""
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith(_OF_A_STACK)]
    short = " ".join(told[:MOST_LINES])
    return short if len(short) <= MOST_CHARACTERS else f"{short[:MOST_CHARACTERS]}…"


def _outcome(
    part: Part,
    status: Status,
    seconds: float,
    quick: bool,
    reason: str = "",
    result: PartResult | None = None,
) -> PartOutcome:
    found, taken = result or PartResult(()), round(seconds, 1)
    ran = (today(), machine())
    return PartOutcome(part.name, part.title, part.shows, status, taken, quick, reason, found, *ran)


def today() -> str:
    """The date, in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def machine() -> str:
    """What figures are taken on, and of."""
    versions = f"Spark {version('pyspark')}, Penstock {version('penstock')}"
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {versions}"


class _Clock:
    """How much is left, by the estimates, corrected by how long the parts so far took against theirs."""

    def __init__(self, parts: Sequence[Part], estimates: Mapping[str, float]) -> None:
        self._parts, self._estimates = parts, estimates
        self._number, self._begun = 0, time.monotonic()
        self._expected = self._taken = self._present = 0.0

    def begin(self, number: int) -> None:
        """The part of this number begins."""
        self._number, self._begun = number, time.monotonic()
        self._present = self._estimates[self._parts[number].name]

    def end(self, seconds: float) -> None:
        """It has ended after so many seconds."""
        self._expected += self._present
        self._taken += seconds
        self._present = 0.0

    def heading(self) -> str:
        """Which part it is, and how long all takes from now on."""
        left = self.left_seconds(time.monotonic() - self._begun)
        which = f"part {self._number + 1} of {len(self._parts)}, {self._parts[self._number].name}"
        if left < 1:
            return f"{which}, takes longer than estimated"
        said = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
        return f"{which}, about {said} left in all"

    def left_seconds(self, gone: float) -> float:
        """Seconds left, when the present part has run for so long."""
        present, *later = [self._estimates.get(part.name, 0.0) for part in self._parts[self._number :]]
        return max(present * self._pace() - gone, 0.0) + sum(later) * self._pace()

    def share(self) -> float:
        """What is done of the whole, the present part counted by the time that it has run."""
        whole = sum(self._estimates.values())
        begun = min((time.monotonic() - self._begun) / self._pace(), self._present)
        return (self._expected + begun) / whole if whole else 1.0

    def _pace(self) -> float:
        # short parts come first and say little of the others: the estimates weigh as a tenth of all does
        weight = max(60.0, sum(self._estimates.values()) / 10)
        return (self._taken + weight) / (self._expected + weight)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
