"""Durations, sizes and names as people write them, and the types of settings that are made of them."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, Field, TypeAdapter, ValidationError

SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)\s*", re.IGNORECASE)


def parse_duration(written: object) -> float:
    """Return the duration in seconds; a ValueError says what was expected."""
    # True is an int in Python, and YAML turns a bare `on` into True
    if isinstance(written, int | float) and not isinstance(written, bool):
        return _finite(written, written)
    match = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    unit = (match["unit"].lower() or "s") if match else ""
    if match is None or unit not in SECONDS_PER_UNIT:
        raise ValueError(f"{written!r} is not a duration such as 500ms, 10s, 5min, 1h or a number of seconds")
    return _finite(float(match["number"]) * SECONDS_PER_UNIT[unit], written)


def format_duration(seconds: float) -> str:
    """Write a duration in the largest unit that keeps it a whole number."""
    for unit in ("h", "min", "s"):
        count = seconds / SECONDS_PER_UNIT[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return "0s" if seconds == 0 else f"{seconds * 1000:.12g}ms"


def _finite(seconds: float, written: object) -> float:
    # a whole number of hundreds of digits is finite, but no float
    if not -sys.float_info.max <= seconds <= sys.float_info.max:
        raise ValueError(f"{written!r} is not a finite duration")
    return float(seconds)


_BYTES: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)
_OF_SPARK = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgtp]?)b?", re.IGNORECASE)


def parse_size(written: str) -> float:
    """Read a size such as 512MB or 4GiB: kB are thousands of bytes, KiB are 1024."""
    try:
        return float(_BYTES.validate_python(written.strip()))
    except (ValidationError, OverflowError):
        raise ValueError(f"{written!r} is not a size such as 512MB, 4GB or 4GiB") from None


def parse_spark_size(written: str) -> float:
    """Read a size as Spark writes it: `k` is 1024 bytes, and a number without a unit is in MiB."""
    match = _OF_SPARK.fullmatch(written.strip())
    try:
        number, unit = match.groups() if match else ("", "")
        return parse_size(number + {"": "mib", "b": "b"}.get(unit.lower(), f"{unit}ib"))
    except ValueError:
        raise ValueError(f"{written!r} is not a size such as 4g or 512m") from None


def _number(written: object) -> object:
    # pydantic takes True for 1, and YAML turns a bare `yes` into True
    if isinstance(written, bool):
        raise ValueError("a number is expected")
    return written


def _is_none(written: object) -> bool:
    return written is None or (isinstance(written, str) and written.strip().lower() in {"", "none", "null"})


def optional_duration(written: object) -> float | None:
    """Read a duration, or `none`."""
    return None if _is_none(written) else parse_duration(written)


def _optional_size(written: object) -> float | None:
    if _is_none(written):
        return None
    size = parse_spark_size(written) if isinstance(written, str) else written
    if not isinstance(size, int | float) or isinstance(size, bool) or not size > 0:
        raise ValueError("a size such as 64g is expected")
    return float(size)


def _optional_number(written: object) -> object:
    return None if _is_none(written) else _number(written)


def _optional_text(written: object) -> object:
    return None if _is_none(written) else written


def _names(written: object) -> object:
    if written is None:
        return ()
    if isinstance(written, str):
        return tuple(name.strip() for name in written.split(",") if name.strip())
    if isinstance(written, list | tuple):
        return tuple(str(one) if _is_whole(one) else one for one in written)
    return (str(written),) if _is_whole(written) else written


def _is_whole(written: object) -> bool:
    """Tell whether YAML has made a number of a name, as in `service_lags: [0, 1]`."""
    return isinstance(written, int) and not isinstance(written, bool)


def _off(written: object) -> object:
    # YAML turns a bare `off` into False
    return "off" if written is False else written


def _pairs(written: object) -> object:
    """Split `name=text` pairs separated by commas, for places where only text can be written."""
    if _is_none(written):
        return {}
    if not isinstance(written, str):
        return written
    pairs = [pair.partition("=") for pair in written.split(",") if pair.strip()]
    return {name.strip(): text.strip() for name, _, text in pairs}


def _read_durations(written: object) -> object:
    named = _pairs(written)
    if not isinstance(named, Mapping):
        raise ValueError("names with durations are expected, such as parse=1s,count=2s")
    return {str(name): parse_duration(duration) for name, duration in named.items()}


def _read_texts(written: object) -> object:
    named = _pairs(written)
    if not isinstance(named, Mapping) or not all(named.values()):
        raise ValueError("names with texts are expected, such as parse=one,count=two")
    return {str(name): str(text) for name, text in named.items()}


def _location(written: object) -> object:
    if not isinstance(written, str | Path) or "://" in str(written):
        return written
    if not str(written).strip():
        # its path would be the present directory, and hide that nothing was given
        raise ValueError("a path or an address is expected")
    try:
        return str(Path(written).expanduser())
    except RuntimeError:
        raise ValueError("the home directory that ~ stands for is not known") from None


def _optional_location(written: object) -> object:
    return None if _is_none(written) else _location(written)


Duration = Annotated[float, BeforeValidator(parse_duration)]
OptionalDuration = Annotated[float | None, BeforeValidator(optional_duration)]
Count = Annotated[int, BeforeValidator(_number)]
OptionalCount = Annotated[int | None, BeforeValidator(_optional_number)]
Ratio = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
OrOff = BeforeValidator(_off)
"""For choices among words of which one is `off`."""
OptionalRatio = Annotated[
    Annotated[float, Field(allow_inf_nan=False)] | None, BeforeValidator(_optional_number)
]
OptionalSize = Annotated[float | None, BeforeValidator(_optional_size)]
OptionalText = Annotated[str | None, BeforeValidator(_optional_text)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
NamedDurations = Annotated[dict[str, float], BeforeValidator(_read_durations)]
NamedTexts = Annotated[dict[str, str], BeforeValidator(_read_texts)]
Location = Annotated[str, BeforeValidator(_location)]
OptionalLocation = Annotated[str | None, BeforeValidator(_optional_location)]


def suggest_name(
    name: str,
    known: Iterable[str],
    cutoff: float = 0.5,
    spell: Callable[[str], str] = repr,
    list_all: bool = True,
) -> str:
    """Return the end of a message: the known name that comes closest, or else all known names."""
    names = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=cutoff)
    if near:
        return f"; did you mean {spell(names[near[0]])}?"
    return f"; known: {', '.join(names.values())}" if list_all else ""
