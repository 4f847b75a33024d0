"""Loads by name: how the rate of a feed goes up and down to a peak, as a rate profile's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.errors import BadInput
from penstock.simulate.profiles import parse_recording
from penstock.units.fields import suggest_name

DAY = Path(__file__).with_name("day.csv")
"""The day that the load `day` follows unless a recording is given."""
LOW = 1 / 3
"""Share of the peak before and after a step."""
RAMP_STEPS = 24
RAMP_FROM = 0.1
NIGHTS = 3


def load_profile(name: str, peak: float, seconds: float, recording: Path = DAY) -> str:
    """Return the profile of a load with this peak rate that lasts so many seconds."""
    if name not in LOADS:
        raise BadInput(f"there is no load {name!r}{suggest_name(name, LOADS)}")
    if not (peak > 0 and seconds > 0):
        raise BadInput(f"a load needs a peak rate and a length above 0, not {peak:g} and {seconds:g}")
    return _follow(recording, peak, seconds) if name == "day" else _MADE[name](peak, seconds)


def _steady(peak: float, _seconds: float) -> str:
    return f"constant:{peak:.12g}"


def _step_up(peak: float, seconds: float) -> str:
    return f"steps:0={LOW * peak:.12g},{seconds / 2:.12g}={peak:.12g}"


def _step_down(peak: float, seconds: float) -> str:
    return f"steps:0={peak:.12g},{seconds / 2:.12g}={LOW * peak:.12g}"


def _ramp(peak: float, seconds: float) -> str:
    """Climb in steps, each too small to look like one."""
    shares = [RAMP_FROM + (1 - RAMP_FROM) * step / (RAMP_STEPS - 1) for step in range(RAMP_STEPS)]
    starts = [seconds * step / RAMP_STEPS for step in range(RAMP_STEPS)]
    pairs = (f"{start:.12g}={share * peak:.12g}" for start, share in zip(starts, shares, strict=True))
    return f"steps:{','.join(pairs)}"


def _nights(peak: float, seconds: float) -> str:
    """Work for the first half of each of three days, and send nothing at night."""
    every = seconds / NIGHTS
    return f"bursts:base=0,peak={peak:.12g},every={every:.12g},length={every / 2:.12g}"


def _follow(recording: Path, peak: float, seconds: float) -> str:
    """Compress a recording in time, and scale it so that its largest value is the peak."""
    try:
        text = recording.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the recording {recording} cannot be read: {error}") from error
    steps = parse_recording(text, name=str(recording))
    if len(steps.starts) < 2 or not max(steps.rates) > 0:
        raise BadInput(f"the recording {recording} needs two lines or more, and a value above 0")
    # the last value holds as long as the one before it
    length = 2 * steps.starts[-1] - steps.starts[-2]
    scale, speed = peak / max(steps.rates), length / seconds
    return f"recorded:path={recording},scale={scale:.12g},speed={speed:.12g}"


_MADE: Mapping[str, Callable[[float, float], str]] = {
    "steady": _steady,
    "step-up": _step_up,
    "step-down": _step_down,
    "ramp": _ramp,
    "nights": _nights,
}
LOADS = (*_MADE, "day")
