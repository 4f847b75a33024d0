"""Numbers in messages: with their unit, and no more digits than they deserve."""

from __future__ import annotations

import math

from penstock.units.fields import parse_spark_size

ABSENT = "–"
_MEBIBYTE = 1 << 20


def count(value: float | None) -> str:
    """Write a whole number with thousands apart: 12,600."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Write a span of time: 450 ms, 7.1 s, 12 min, 3.5 h."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s".replace(".0 s", " s")
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def size(value: float | None) -> str:
    """Write an amount of data: 512 B, 1.2 kB, 340 MB."""
    if value is None or not math.isfinite(value):
        return ABSENT
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            scaled = value / factor
            return f"{scaled:.0f} {unit}" if scaled >= 100 else f"{scaled:.1f} {unit}"
    return f"{value:.0f} B"


def count_of(number: int, noun: str) -> str:
    """Write a number of things: 1 task, 12,600 tasks."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def spark_size(value: float) -> str:
    """Write a size as Spark's settings take it: whole gibibytes as 8g, others in mebibytes, rounded up."""
    mebibytes = max(1, math.ceil(value / _MEBIBYTE))
    return f"{mebibytes // 1024}g" if mebibytes % 1024 == 0 else f"{mebibytes}m"


def spark_mebibytes(value: float) -> str:
    """Write a size in mebibytes, rounded up: sizes to be compared are then all in one unit."""
    return f"{math.ceil(value / _MEBIBYTE)}m"


def scale_spark_size(written: str, factor: float) -> str:
    """Write the size of a Spark setting times a factor; one that cannot be read counts as Spark's 1g."""
    return spark_size(read_spark_size(written) * factor)


def read_spark_size(written: str) -> float:
    """Return the bytes of a Spark setting; one that cannot be read counts as Spark's 1g."""
    try:
        return parse_spark_size(written)
    except ValueError:
        return float(1 << 30)
