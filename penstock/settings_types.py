"""How settings are written: durations with units, numbers that are numbers, names and places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from penstock.durations import parse_duration


def _number(written: object) -> object:
    # pydantic takes True for 1, and YAML turns a bare `yes` into True
    if isinstance(written, bool):
        raise ValueError("a number is expected")
    return written


def _is_none(written: object) -> bool:
    return written is None or (isinstance(written, str) and written.strip().lower() in {"", "none", "null"})


def _optional_duration(written: object) -> float | None:
    return None if _is_none(written) else parse_duration(written)


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
    """Whether YAML has made a number of a name, as in `service_lags: [0, 1]`."""
    return isinstance(written, int) and not isinstance(written, bool)


def _off(written: object) -> object:
    # YAML turns a bare `off` into False
    return "off" if written is False else written


def _named_durations(written: object) -> object:
    """A mapping, or `name=2s` separated by commas where only text can be written."""
    if _is_none(written):
        return {}
    if isinstance(written, str):
        pairs = [pair.partition("=") for pair in written.split(",") if pair.strip()]
        written = {name.strip(): duration for name, _, duration in pairs}
    if not isinstance(written, Mapping):
        raise ValueError("names with durations are expected, such as parse=1s,count=2s")
    return {str(name): parse_duration(duration) for name, duration in written.items()}


def _named_texts(written: object) -> object:
    """A mapping, or `name=text` separated by commas where only text can be written."""
    if _is_none(written):
        return {}
    if isinstance(written, str):
        pairs = [pair.partition("=") for pair in written.split(",") if pair.strip()]
        written = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(written, Mapping) or not all(written.values()):
        raise ValueError("names with texts are expected, such as parse=one,count=two")
    return {str(name): str(text) for name, text in written.items()}


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


Duration = Annotated[float, BeforeValidator(parse_duration)]
OptionalDuration = Annotated[float | None, BeforeValidator(_optional_duration)]
Count = Annotated[int, BeforeValidator(_number)]
OptionalCount = Annotated[int | None, BeforeValidator(_optional_number)]
Ratio = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
OrOff = BeforeValidator(_off)
"""For choices among words of which one is `off`."""
OptionalText = Annotated[str | None, BeforeValidator(_optional_text)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
NamedDurations = Annotated[dict[str, float], BeforeValidator(_named_durations)]
NamedTexts = Annotated[dict[str, str], BeforeValidator(_named_texts)]
Location = Annotated[str, BeforeValidator(_location)]
