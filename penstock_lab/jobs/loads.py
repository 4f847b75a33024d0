"""Loads by name: how the rate of a feed goes up and down to a peak, as a rate profile's text.

The load `day` is made, not recorded: a night, a morning and an evening, with noise from a seed. At hour h of
24 the rate is in proportion to

    0.1 + 0.9 · exp(-d(h, 8)² / (2 · 1.5²)) + 0.6 · exp(-d(h, 17.5)² / (2 · 2.5²))

where d is the distance in hours around the clock. A rate holds for a quarter of an hour, and each quarter has
a factor of its own, drawn evenly from 0.9 to 1.1. The peak is 2.6 times the mean. A recording takes its place
where one is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from penstock.errors import BadInput
from penstock.simulate.profiles import Steps, parse_recording
from penstock.units.fields import suggest_name
from penstock_lab.workloads.records import draw_bits, draw_uniform

LOW = 1 / 2
"""Share of the peak before and after a step."""
RAMP_STEPS = 24
RAMP_FROM = 0.1
NIGHTS = 3
STAIRS_FROM = 1 / 3
STAIRS = ((0.0, 0.75), (STAIRS_FROM, 0.25), (1 / 2, 1.0), (2 / 3, 0.5), (5 / 6, 0.75))
"""From which share of the time on the rate has which share of the peak."""

QUARTERS = 96
NIGHT = 0.1
BUMPS = ((8.0, 1.5, 0.9), (17.5, 2.5, 0.6))
"""Hour, width in hours and height of the morning and the evening."""
NOISE, NOISE_SEED = 0.1, 17
MOST_STEPS = 240
"""A recording with more values is averaged into so many: a day of ten minutes has a value every 2.5 s."""


def load_profile(name: str, peak: float, seconds: float, recording: Path | None = None) -> str:
    """Return the profile of a load with this peak rate that lasts so many seconds."""
    if name not in LOADS:
        raise BadInput(f"there is no load {name!r}{suggest_name(name, LOADS)}")
    if not (peak > 0 and seconds > 0):
        raise BadInput(f"a load needs a peak rate and a length above 0, not {peak:g} and {seconds:g}")
    if name == "day" and recording is not None:
        return _write_steps(*_read_day(recording), peak, seconds)
    return _MADE[name](peak, seconds)


def _steady(peak: float, _seconds: float) -> str:
    return f"constant:{peak:.12g}"


def _step_up(peak: float, seconds: float) -> str:
    return f"steps:0={LOW * peak:.12g},{seconds / 2:.12g}={peak:.12g}"


def _step_down(peak: float, seconds: float) -> str:
    return f"steps:0={peak:.12g},{seconds / 2:.12g}={LOW * peak:.12g}"


def _ramp(peak: float, seconds: float) -> str:
    """Climb for the first half, in steps that are each too small to look like one."""
    shares = [RAMP_FROM + (1 - RAMP_FROM) * step / (RAMP_STEPS - 1) for step in range(RAMP_STEPS)]
    starts = [seconds / 2 * step / (RAMP_STEPS - 1) for step in range(RAMP_STEPS)]
    pairs = (f"{start:.12g}={share * peak:.12g}" for start, share in zip(starts, shares, strict=True))
    return f"steps:{','.join(pairs)}"


def _stairs(peak: float, seconds: float) -> str:
    """Go up and down in turn, so that nothing that changes with time looks like an effect of the rate."""
    pairs = (f"{share * seconds:.12g}={rate * peak:.12g}" for share, rate in STAIRS)
    return f"steps:{','.join(pairs)}"


def _nights(peak: float, seconds: float) -> str:
    """Work for the first half of each of three days, and send nothing at night."""
    every = seconds / NIGHTS
    return f"bursts:base=0,peak={peak:.12g},every={every:.12g},length={every / 2:.12g}"


def _day(peak: float, seconds: float) -> str:
    hours = [24 * (quarter + 0.5) / QUARTERS for quarter in range(QUARTERS)]
    drawn = draw_uniform(draw_bits(np.arange(QUARTERS, dtype=np.uint64), NOISE_SEED), 0, 53).tolist()
    noise = [1 + NOISE * (2 * one - 1) for one in drawn]
    rates = [share_at(hour) * factor for hour, factor in zip(hours, noise, strict=True)]
    return _write_steps(range(QUARTERS), rates, QUARTERS, peak, seconds)


def share_at(hour: float) -> float:
    """Return the made day's rate at an hour, without noise and before it is scaled."""
    apart = [((hour - at + 12) % 24 - 12, width, height) for at, width, height in BUMPS]
    return NIGHT + sum(height * math.exp(-((d / width) ** 2) / 2) for d, width, height in apart)


def _write_steps(
    starts: Sequence[float], rates: Sequence[float], length: float, peak: float, seconds: float
) -> str:
    """Write steps, compressed from one length to another, and scaled so that the largest is the peak."""
    speed, scale = length / seconds, peak / max(rates)
    pairs = (f"{at / speed:.12g}={rate * scale:.12g}" for at, rate in zip(starts, rates, strict=True))
    return f"steps:{','.join(pairs)}"


def _read_day(recording: Path) -> tuple[list[float], list[float], float]:
    """Return starts, rates and length of a recording: lines `second,rate`, or one rate a line."""
    try:
        text = recording.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the recording {recording} cannot be read: {error}") from error
    steps = parse_recording(_add_seconds(text), name=str(recording))
    if len(steps.starts) < 2 or not max(steps.rates) > 0:
        raise BadInput(f"the recording {recording} needs two lines or more, and a value above 0")
    # the last value holds as long as the one before it
    length = 2 * steps.starts[-1] - steps.starts[-2]
    if len(steps.starts) <= MOST_STEPS:
        return list(steps.starts), list(steps.rates), length
    return (*_average(steps, length), length)


def _add_seconds(text: str) -> str:
    """Number the lines of a recording that has one rate a line; the lines stay where they are."""
    if "," in text or "|" in text:
        return text
    numbered, count = [], 0
    for line in text.splitlines():
        is_data = bool(line.strip()) and not line.lstrip().startswith("#")
        # a heading is no number, and only the first line can be one
        is_heading = is_data and not count and not line.strip()[0].isdigit()
        numbered.append(f"second,{line}" if is_heading else f"{count},{line}" if is_data else line)
        count += is_data and not is_heading
    return "\n".join(numbered)


def _average(steps: Steps, length: float) -> tuple[list[float], list[float]]:
    ends = [length * number / MOST_STEPS for number in range(MOST_STEPS + 1)]
    rates = [(steps.cumulative(end) - steps.cumulative(at)) / (end - at) for at, end in pairwise(ends)]
    return ends[:-1], rates


_MADE: Mapping[str, Callable[[float, float], str]] = {
    "steady": _steady,
    "step-up": _step_up,
    "step-down": _step_down,
    "ramp": _ramp,
    "stairs": _stairs,
    "nights": _nights,
    "day": _day,
}
LOADS = tuple(_MADE)
