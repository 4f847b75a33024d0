"""Reads settings from each place: its keys become setting names, and the place is kept for messages."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import yaml  # type: ignore[import-untyped]

from penstock.errors import BadSettings

ENVIRONMENT_PREFIX = "PENSTOCK_"
SPARK_PREFIX = "spark.penstock."


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


def from_yaml(file: str, text: str, known: Sequence[str]) -> dict[str, Given]:
    """Read one YAML mapping; errors name the file, and the line where it is known."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadSettings(_syntax_message(file, error)) from None
    except (ValueError, RecursionError) as error:
        # YAML itself takes 2024-99-99 for a date, and fails on it with a bare ValueError
        raise BadSettings(f"{file}: cannot be read as YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadSettings(f"{file}: settings must be a mapping of names to values, not a {_kind(values)}")
    lines = _key_lines(file, root)
    rows = (
        (str(key), Given(value, f"{file} line {lines.get(str(key), 1)}, {key}"))
        for key, value in values.items()
    )
    return _check_names(rows, known, spelled=str)


def from_environment(
    environment: Mapping[str, str], known: Sequence[str], reserved: frozenset[str] = frozenset()
) -> dict[str, Given]:
    """Take the PENSTOCK_* variables, except those that mean something else."""
    rows = (
        (name.removeprefix(ENVIRONMENT_PREFIX).lower(), Given(value, f"environment variable {name}"))
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in reserved
    )
    return _check_names(rows, known, spelled=environment_name)


def from_spark(spark_conf: Mapping[str, str], known: Sequence[str]) -> dict[str, Given]:
    """Take the spark.penstock.* keys; a dot may stand for an underscore."""
    rows = (
        (key.removeprefix(SPARK_PREFIX).replace(".", "_"), Given(value, f"Spark key {key}"))
        for key, value in spark_conf.items()
        if key.startswith(SPARK_PREFIX)
    )
    return _check_names(rows, known, spelled=spark_key)


def from_arguments(arguments: Mapping[str, object], known: Sequence[str]) -> dict[str, Given]:
    """Take settings given in code."""
    rows = ((str(name), Given(value, f"argument {name}")) for name, value in arguments.items())
    return _check_names(rows, known, spelled=str)


def _check_names(
    rows: Iterable[tuple[str, Given]], known: Sequence[str], spelled: Callable[[str], str]
) -> dict[str, Given]:
    found: dict[str, Given] = {}
    for name, given in rows:
        if name not in known:
            raise BadSettings(f"{given.place}: unknown setting{suggest_nearest(name, known, spelled)}")
        if name in found and found[name].value != given.value:
            raise BadSettings(f"{given.place}: contradicts {found[name].place}; give only one of them")
        found[name] = given
    return found


def suggest_nearest(name: str, known: Sequence[str], spelled: Callable[[str], str]) -> str:
    """Return the end of a message that suggests the nearest known name, if one is near."""
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.5)
    return f"; did you mean {spelled(near[0])}?" if near else ""


def _key_lines(file: str, root: yaml.MappingNode) -> dict[str, int]:
    """Map each key to its line. A repeated key is an error, which YAML's own reader would not report."""
    lines: dict[str, int] = {}
    for key, _ in root.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in lines:
            raise BadSettings(f"{file} line {line}: {name} is given twice, first in line {lines[name]}")
        lines[name] = line
    return lines


def _syntax_message(file: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    where = f" line {mark.line + 1}" if mark is not None else ""
    return f"{file}{where}: not valid YAML: {problem}"


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else f"single {type(value).__name__}"
