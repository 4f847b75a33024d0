"""Reads settings from each place: its keys become setting names, and the place is kept for messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import BadSettings
from penstock.units.fields import suggest_name
from penstock.units.texts import parse_yaml

log = logging.getLogger(__name__)

ENVIRONMENT_PREFIX = "PENSTOCK_"
SPARK_PREFIX = "spark.penstock."
Renamed = Mapping[str, str]
"""The former name of a setting → its name."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where."""

    value: object
    place: str


def environment_name(setting: str) -> str:
    """Return the setting's environment variable."""
    return ENVIRONMENT_PREFIX + setting.upper()


def spark_key(setting: str) -> str:
    """Return the setting's key in Spark's configuration."""
    return SPARK_PREFIX + setting


def from_yaml(file: str, text: str, known: Sequence[str], former: Renamed) -> dict[str, Given]:
    """Read one YAML mapping; errors name the file, and the line where it is known."""
    values, lines = parse_yaml(file, text, BadSettings)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadSettings(f"{file}: settings must be a mapping of names to values, not a {_kind(values)}")
    rows = (
        (str(key), Given(value, f"{file} line {lines.get(str(key), 1)}, {key}"))
        for key, value in values.items()
    )
    return _check_names(rows, known, former, spelled=str)


def from_environment(
    environment: Mapping[str, str],
    known: Sequence[str],
    former: Renamed,
    reserved: frozenset[str] = frozenset(),
) -> dict[str, Given]:
    """Take the PENSTOCK_* variables, except those that mean something else."""
    rows = (
        (name.removeprefix(ENVIRONMENT_PREFIX).lower(), Given(value, f"environment variable {name}"))
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in reserved
    )
    return _check_names(rows, known, former, spelled=environment_name)


def from_spark(spark_conf: Mapping[str, str], known: Sequence[str], former: Renamed) -> dict[str, Given]:
    """Take the spark.penstock.* keys; a dot may stand for an underscore."""
    rows = (
        (key.removeprefix(SPARK_PREFIX).replace(".", "_"), Given(value, f"Spark key {key}"))
        for key, value in spark_conf.items()
        if key.startswith(SPARK_PREFIX)
    )
    return _check_names(rows, known, former, spelled=spark_key)


def from_arguments(
    arguments: Mapping[str, object], known: Sequence[str], former: Renamed
) -> dict[str, Given]:
    """Take settings given in code."""
    rows = ((str(name), Given(value, f"argument {name}")) for name, value in arguments.items())
    return _check_names(rows, known, former, spelled=str)


def _check_names(
    rows: Iterable[tuple[str, Given]],
    known: Sequence[str],
    former: Renamed,
    spelled: Callable[[str], str],
) -> dict[str, Given]:
    found: dict[str, Given] = {}
    for written, given in rows:
        name = former.get(written, written)
        if name != written:
            log.warning(
                "%s: now called %s; the former name works until the next release", given.place, spelled(name)
            )
        if name not in known:
            raise BadSettings(f"{given.place}: unknown setting{suggest_setting(name, known, spelled)}")
        if name in found and found[name].value != given.value:
            raise BadSettings(f"{given.place}: contradicts {found[name].place}; give only one of them")
        found[name] = given
    return found


def suggest_setting(name: str, known: Sequence[str], spelled: Callable[[str], str] = str) -> str:
    """Return the end of a message that suggests the nearest setting, if one is near."""
    return suggest_name(name.replace("-", "_"), known, spell=spelled, list_all=False)


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else f"single {type(value).__name__}"
