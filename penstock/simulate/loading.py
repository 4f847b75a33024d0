"""Scenario files: found by path or by the name of a shipped one, read, and checked with file and key."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.resources import files
from io import StringIO
from pathlib import Path

import numpy as np
import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ValidationError

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import Floats
from penstock.errors import BadGraph, BadInput, BadSettings
from penstock.settings import Settings, load_settings
from penstock.simulate.batches import largest_rates
from penstock.simulate.capacity import Linear, Table, Usl, capacities, skew_with
from penstock.simulate.checking import check, check_followed, nearest
from penstock.simulate.distributions import KINDS, Gamma, Lognormal
from penstock.simulate.experiment import Experiment
from penstock.simulate.scenario import (
    BatchSpec,
    CsvRate,
    Failures,
    Interference,
    Neighbours,
    OperatorSpec,
    ScalingSpec,
    Scenario,
    Slowdown,
    SourceSpec,
)
from penstock.workloads.profiles import Profile, Steps, parse_profile

SHIPPED = Path(str(files("penstock.simulate") / "scenarios"))
NO_SETTINGS_OF_A_SCENARIO = frozenset({"policy", "mode", "journal", "runtime_directory", "control_socket"})
"""What a simulation has no use for: policies are named on the command line, and nothing is written."""


def shipped() -> dict[str, str]:
    """Name → description of the scenarios that come with Penstock."""
    described = {}
    for path in sorted(SHIPPED.glob("*.yaml")):
        described[path.stem] = " ".join(
            str(yaml.safe_load(path.read_text(encoding="utf-8"))["description"]).split()
        )
    return described


def load(named: str) -> Experiment:
    """Read a scenario by its path, or by the bare name of a shipped one."""
    path = Path(named)
    if not path.exists() and path.name == named:
        path = SHIPPED / f"{named.removesuffix('.yaml')}.yaml"
        if not path.exists():
            raise BadInput(f"{named}: no such file, and no shipped scenario{nearest(named, shipped())}")
    return parse(_read(path), path)


def parse(text: str, path: Path) -> Experiment:
    """A scenario from its text; recordings are looked for beside `path`."""
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise BadInput(f"{path}{where}: not valid YAML: {problem}") from None
    if not isinstance(values, dict):
        raise BadInput(f"{path}: a scenario is a mapping with duration, sources and operators")
    try:
        scenario = Scenario.model_validate(values)
    except ValidationError as error:
        raise BadInput(f"{path}: {explained(error)}") from None
    return _made_ready(scenario, path)


def _made_ready(scenario: Scenario, path: Path) -> Experiment:
    graph = _graph(scenario, path)
    settings = _settings(scenario, path)
    specs: dict[str, SourceSpec | OperatorSpec] = {**scenario.sources, **scenario.operators}
    ordered = [specs[operator.name] for operator in graph.operators]
    counts = [scenario.batches.executors] if scenario.batches else [spec.instances for spec in ordered]
    most = max(settings.max_executors, *counts)
    own = tuple(_capacities(specs[o.name], most, f"{path}: operators.{o.name}") for o in graph.operators)
    experiment = Experiment(
        name=path.stem,
        scenario=scenario,
        graph=graph,
        settings=settings,
        offered=_offered(scenario, graph, path),
        capacities=tuple(_limited(spec, table) for spec, table in zip(ordered, own, strict=True)),
        own_capacities=own,
        initial=np.array(counts, dtype=np.int64),
    )
    return _checked(experiment, most, path)


def _checked(experiment: Experiment, most: int, path: Path) -> Experiment:
    """With what depends on the whole of it: sizes of executors, and how many records there are."""
    if experiment.shares_slots:
        return replace(experiment, capacities=(largest_rates(experiment, most),))
    if experiment.scenario.latency == "events":
        try:
            check_followed(float(experiment.offered.sum()))
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from None
    return experiment


def _graph(scenario: Scenario, path: Path) -> LogicalGraph:
    known = [*scenario.sources, *scenario.operators]
    edges = []
    for name, spec in scenario.operators.items():
        for origin in spec.inputs:
            if origin not in known:
                raise BadInput(
                    f"{path}: operators.{name}.inputs: no operator {origin!r}{nearest(origin, known)}"
                )
            edges.append((origin, name))
    operators = [Operator(name) for name in scenario.sources]
    operators += [Operator(name, spec.scalable) for name, spec in scenario.operators.items()]
    try:
        graph = LogicalGraph(operators, edges)
    except BadGraph as error:
        raise BadInput(f"{path}: operators: {error}") from None
    try:
        check(scenario, graph)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    return graph


def _settings(scenario: Scenario, path: Path) -> Settings:
    for name in NO_SETTINGS_OF_A_SCENARIO & scenario.settings.keys():
        raise BadInput(f"{path}: settings.{name}: has no meaning in a simulation")
    try:
        settings = load_settings(None, {}, {}, scenario.settings)
    except BadSettings as error:
        raise BadInput(f"{path}: settings: {str(error).removeprefix('argument ')}") from None
    if settings.policy_interval != int(settings.policy_interval):
        raise BadInput(f"{path}: settings.policy_interval: not a whole number of seconds")
    return settings


def _capacities(spec: SourceSpec | OperatorSpec, most: int, key: str) -> Floats:
    if isinstance(spec, SourceSpec):
        return capacities(Linear(), spec.service_time, most)
    is_table = isinstance(spec.curve, Table)
    if is_table == (spec.service_time is not None):
        told = "a table of capacities already says what a record costs" if is_table else "is missing"
        raise BadInput(f"{key}.service_time: {told}")
    # the operator is full as soon as its busiest instance is
    return capacities(spec.curve, spec.service_time, most) / _fullest(spec, most)


def _limited(spec: SourceSpec | OperatorSpec, own: Floats) -> Floats:
    limit = getattr(spec, "limit", None)
    return own if limit is None else np.minimum(own, limit / _fullest(spec, len(own) - 1))


def _fullest(spec: SourceSpec | OperatorSpec, most: int) -> Floats:
    """How many times the average the busiest of 0, 1, ... instances gets."""
    return 1 + skew_with(np.arange(most + 1, dtype=np.int64), getattr(spec, "skew", 0.0))


def _offered(scenario: Scenario, graph: LogicalGraph, path: Path) -> Floats:
    offered = np.zeros((int(scenario.duration), len(graph.operators)))
    for name, spec in scenario.sources.items():
        try:
            profile = _profile(spec.rate, path)
        except BadInput as error:
            raise BadInput(f"{path}: sources.{name}.rate: {error}") from None
        sums = [profile.cumulative(float(second)) for second in range(len(offered) + 1)]
        offered[:, graph.index[name]] = np.maximum(np.diff(np.array(sums)), 0.0)
    return offered


def _profile(rate: str | CsvRate, path: Path) -> Profile:
    if isinstance(rate, str):
        return parse_profile(rate, lambda named: _read(path.parent / named))
    file = path.parent / rate.csv
    rows = list(csv.DictReader(StringIO(_read(file))))
    if not rows:
        raise BadInput(f"{file} has no rows")
    for column in (rate.time, rate.rate):
        if column not in rows[0]:
            raise BadInput(f"{file} has no column {column!r}; it has {', '.join(map(str, rows[0]))}")
    times = [_number(row[rate.time], f"{file} line {line}, {rate.time}") for line, row in enumerate(rows, 2)]
    rates = [_number(row[rate.rate], f"{file} line {line}, {rate.rate}") for line, row in enumerate(rows, 2)]
    return Steps.of([(time - times[0], value * rate.scale) for time, value in zip(times, rates, strict=True)])


def _number(text: str | None, where: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise BadInput(f"{where}: {text!r} is not a number") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None


def explained(error: ValidationError) -> str:
    """The first thing wrong, with its key; an unknown key or curve suggests the nearest known one."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    key = ".".join(location)
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key{nearest(location[-1], _keys_beside(location))}"
    if first["type"] == "union_tag_invalid":
        kind, what = str(first["ctx"]["tag"]), location[-1]
        known = KINDS if what == "distribution" else ("linear", "usl", "table")
        return f"{key}.kind: unknown {what} {kind!r}{nearest(kind, known)}"
    message = first["msg"].removeprefix("Value error, ")
    got = "" if first["type"] == "missing" else f", got {first['input']!r}"
    return f"{key}: {message[:1].lower()}{message[1:]}{got}"


def _keys_beside(location: list[str]) -> Iterable[str]:
    """The known keys at the place of an unknown one."""
    models: Mapping[str, type[BaseModel]] = {
        "sources": SourceSpec,
        "operators": OperatorSpec,
        "scaling": ScalingSpec,
        "slowdowns": Slowdown,
        "failures": Failures,
        "interference": Interference,
        "batches": BatchSpec,
    }
    inner: Mapping[str, type[BaseModel]] = {
        "linear": Linear,
        "usl": Usl,
        "table": Table,
        "CsvRate": CsvRate,
        "lognormal": Lognormal,
        "gamma": Gamma,
        "neighbours": Neighbours,
    }
    if len(location) == 1:
        return Scenario.model_fields
    return inner.get(location[-2], models[location[0]]).model_fields
