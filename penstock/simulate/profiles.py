"""Rate profiles: how many records the outside world has offered after t seconds, exactly.

A profile is written as text, so that a data source option or a command line can carry it:

    constant:100                              100 records a second
    steps:0=100,60=300,120=100                a new rate from each second on
    sine:mean=100,amplitude=50,period=60      mean + amplitude · sin(2πt / period)
    bursts:base=100,peak=400,every=60,length=10   the peak rate in the first 10 s of every 60 s
    recorded:path=trace.csv,scale=0.01,speed=10   a file of lines `second,value`, replayed ten times as fast

Lines of a recording may separate the two by `|` instead of a comma, and the first may be a heading.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from penstock.errors import BadInput


class Profile(Protocol):
    """A rate over time, told by its integral; time counts from the start of the load."""

    def cumulative(self, seconds: float) -> float:
        """Return the integral of the rate from 0: records offered so far, not rounded."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A rate that jumps: `rates[i]` holds from `starts[i]` on, the last one for ever; 0 before the first."""

    starts: tuple[float, ...]
    rates: tuple[float, ...]
    sums: tuple[float, ...]
    """Records offered until each start."""

    @staticmethod
    def of(steps: list[tuple[float, float]]) -> Steps:
        """Build from (second, rate) pairs in rising order of time."""
        _check_steps(steps)
        sums = [0.0]
        for (start, rate), (end, _) in pairwise(steps):
            sums.append(sums[-1] + rate * (end - start))
        return Steps(tuple(second for second, _ in steps), tuple(rate for _, rate in steps), tuple(sums))

    def cumulative(self, seconds: float) -> float:
        """Return the sum of whole steps, kept beforehand, and the part of the current one."""
        number = bisect_right(self.starts, seconds) - 1
        if number < 0:
            return 0.0
        return self.sums[number] + self.rates[number] * (seconds - self.starts[number])


@dataclass(frozen=True, slots=True)
class Sine:
    """A rate that swings around its mean; the amplitude may not exceed the mean."""

    mean: float
    amplitude: float
    period: float

    def __post_init__(self) -> None:
        if not (0 <= self.amplitude <= self.mean and self.period > 0):
            raise BadInput("a sine profile needs 0 <= amplitude <= mean and a period above 0")

    def cumulative(self, seconds: float) -> float:
        """Return the antiderivative of the sine, from 0."""
        if seconds < 0:
            return 0.0
        swing = self.amplitude * self.period / (2 * math.pi)
        return self.mean * seconds + swing * (1 - math.cos(2 * math.pi * seconds / self.period))


@dataclass(frozen=True, slots=True)
class Bursts:
    """A base rate with a peak of `length` seconds at the beginning of `every` so many seconds."""

    base: float
    peak: float
    every: float
    length: float

    def __post_init__(self) -> None:
        if not (0 <= self.base <= self.peak and 0 < self.length <= self.every):
            raise BadInput("a bursts profile needs 0 <= base <= peak and 0 < length <= every")

    def cumulative(self, seconds: float) -> float:
        """Return the base all the time, and what the bursts so far add to it."""
        if seconds < 0:
            return 0.0
        into = math.fmod(seconds, self.every)
        burst_seconds = round((seconds - into) / self.every) * self.length + min(into, self.length)
        return self.base * seconds + (self.peak - self.base) * burst_seconds


def records_offered(profile: Profile, seconds: float) -> int:
    """Count the whole records offered after this many seconds.

    The tolerance keeps 0.1 · 30 = 2.9999999999999996 from hiding a record that is due.
    """
    exact = profile.cumulative(seconds)
    return math.floor(exact + 1e-9 * max(1.0, exact))


def parse_profile(text: str, read: Callable[[str], str] | None = None) -> Profile:
    """Read a profile from its text; `read` opens the file of a recorded one."""
    kind, _, arguments = text.partition(":")
    if kind == "recorded":
        return _parse_recorded(arguments, read or _read_file)
    if kind not in _PARSERS:
        known = ", ".join(sorted([*_PARSERS, "recorded"]))
        raise BadInput(f"the rate profile {text!r} does not begin with one of {known}, and a colon")
    try:
        return _PARSERS[kind](arguments)
    except ValueError:
        raise BadInput(f"the rate profile {text!r} has text where a number belongs") from None


def parse_recording(text: str, scale: float = 1.0, speed: float = 1.0, name: str = "recording") -> Steps:
    """Parse a profile from lines `second,value`: each value holds until the next line's second."""
    if not (scale > 0 and speed > 0):
        raise BadInput(f"{name}: scale and speed must be above 0")
    rows: list[tuple[float, float]] = []
    for number, line in _data_lines(text):
        rows.append(_parse_row(line, f"{name}, line {number}", rows[-1:]))
    if not rows:
        raise BadInput(f"{name} has no lines `second,value`")
    first = rows[0][0]
    return Steps.of([((second - first) / speed, value * scale) for second, value in rows])


def _parse_recorded(arguments: str, read: Callable[[str], str]) -> Steps:
    named = dict(_pairs(arguments))
    path = named.pop("path", "")
    if not path or named.keys() - {"scale", "speed"}:
        raise BadInput(f"a recorded profile takes path, scale and speed, not {arguments!r}")
    scale, speed = (
        _number(named.get(key, "1"), f"{key} of the recorded profile") for key in ("scale", "speed")
    )
    return parse_recording(read(path), scale, speed, path)


_PARSERS: Mapping[str, Callable[[str], Profile]] = {
    "constant": lambda text: Steps.of([(0.0, float(text))]),
    "steps": lambda text: Steps.of([(float(second), float(rate)) for second, rate in _pairs(text)]),
    "sine": lambda text: Sine(**_numbers(text, ("mean", "amplitude", "period"))),
    "bursts": lambda text: Bursts(**_numbers(text, ("base", "peak", "every", "length"))),
}


def _pairs(arguments: str) -> list[tuple[str, str]]:
    pairs = []
    for entry in arguments.split(","):
        name, separator, value = entry.partition("=")
        if not separator:
            raise BadInput(f"{entry!r} is not of the form name=value")
        pairs.append((name.strip(), value.strip()))
    return pairs


def _numbers(arguments: str, names: tuple[str, ...]) -> dict[str, float]:
    named = dict(_pairs(arguments))
    if set(named) != set(names):
        raise BadInput(f"the profile needs {', '.join(names)}, not {arguments!r}")
    return {name: _number(value, name) for name, value in named.items()}


def _number(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise BadInput(f"{what} is {text!r}, not a number") from None
    if not math.isfinite(number):
        raise BadInput(f"{what} is {text!r}, not a finite number")
    return number


def _data_lines(text: str) -> list[tuple[int, str]]:
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    kept = [(number, line) for number, line in lines if line and not line.startswith("#")]
    return kept[1:] if kept and _is_heading(kept[0][1]) else kept


def _is_heading(line: str) -> bool:
    """Tell whether a line is a heading: two names; a line with one number in it is a mistake."""
    names = line.split("|" if "|" in line else ",")
    return len(names) == 2 and not any(map(_is_number, names))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_row(line: str, where: str, before: list[tuple[float, float]]) -> tuple[float, float]:
    """Return one line; `before` is the one before it, if there is one."""
    texts = line.partition("|" if "|" in line else ",")
    if not texts[1]:
        raise BadInput(f"{where}: {line!r} is not `second,value`")
    second, value = _number(texts[0], f"{where}: the second"), _number(texts[2], f"{where}: the value")
    if value < 0:
        raise BadInput(f"{where}: the value is {value:g}, below 0")
    if before and second <= before[0][0]:
        raise BadInput(f"{where}: second {second:.15g} does not come after {before[0][0]:.15g}")
    return second, value


def _check_steps(steps: list[tuple[float, float]]) -> None:
    if not steps:
        raise BadInput("a steps profile needs at least one step")
    for second, rate in steps:
        if not (math.isfinite(second) and math.isfinite(rate) and rate >= 0 and second >= 0):
            raise BadInput(f"the step {second:g}={rate:g} needs a second and a rate of 0 or more")
    for (earlier, _), (later, _) in pairwise(steps):
        if not later > earlier:
            raise BadInput(f"the step at second {later:g} does not come after the one at {earlier:g}")


def _read_file(path: str) -> str:
    try:
        # spreadsheets begin what they export with a mark of its encoding
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the recording {path} cannot be read: {error}") from error
