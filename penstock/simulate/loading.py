"""Scenario files: found by path or shipped name, read, and validated across their parts."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.resources import files
from io import StringIO
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ValidationError

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import Floats
from penstock.errors import BadGraph, BadInput, BadSettings
from penstock.settings.model import Settings, load_settings
from penstock.simulate.batches import largest_rates
from penstock.simulate.capacity import KINDS, Distribution, Linear, Table, Usl, limit_skew, tabulate_capacity
from penstock.simulate.experiment import Experiment
from penstock.simulate.profiles import Profile, Steps, parse_profile
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
from penstock.units.fields import suggest_name
from penstock.units.texts import LONGEST_SHOWN, cut_text, parse_yaml, read_text

SHIPPED = Path(str(files("penstock.simulate") / "scenarios"))
NO_SETTINGS_OF_A_SCENARIO = frozenset({"policy", "mode", "journal", "runtime_directory", "control_socket"})
"""Settings without a meaning here: policies are named on the command line, and nothing is written."""
MOST_FOLLOWED = 20_000_000
"""Records that a simulation of single records may have to follow from its sources."""
MOST_OPERATOR_SECONDS = 8_000_000
"""Seconds times operators of one run, each some hundred bytes: three operators for a month."""
MODELS: Mapping[str, type[BaseModel]] = {
    **{"sources": SourceSpec, "operators": OperatorSpec, "scaling": ScalingSpec, "slowdowns": Slowdown},
    **{"failures": Failures, "interference": Interference, "neighbours": Neighbours, "batches": BatchSpec},
    **{"linear": Linear, "usl": Usl, "table": Table, "distribution": Distribution, "CsvRate": CsvRate},
}
"""The parts of a scenario by their keys, and by the kinds that keys may have."""


def list_shipped() -> dict[str, str]:
    """Return name → description of the scenarios that come with Penstock."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(SHIPPED.glob("*.yaml"))}
    return {name: " ".join(parse_yaml(name, text)[0]["description"].split()) for name, text in texts.items()}


def load(named: str) -> Experiment:
    """Read a scenario by its path, or by the bare name of a shipped one."""
    path = Path(named)
    if not path.exists() and path.name == named:
        path = SHIPPED / f"{named.removesuffix('.yaml')}.yaml"
        if not path.exists():
            known = suggest_name(named, list_shipped())
            raise BadInput(f"{named}: neither a file nor a shipped scenario{known}")
    return parse(read_text(path), path)


def parse(text: str, path: Path) -> Experiment:
    """Return a scenario from its text; recordings are looked for beside `path`."""
    values, _ = parse_yaml(str(path), text)
    if not isinstance(values, dict):
        raise BadInput(f"{path}: a scenario is a mapping with duration, sources and operators")
    try:
        return _prepare(Scenario.model_validate(values), path)
    except ValidationError as error:
        raise BadInput(f"{path}: {explain_error(error)}") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _prepare(scenario: Scenario, path: Path) -> Experiment:
    """Make a scenario ready to run; an error names the key."""
    graph, settings = _build_graph(scenario), _load_settings(scenario)
    _check_parts(scenario, graph)
    specs: dict[str, SourceSpec | OperatorSpec] = {**scenario.sources, **scenario.operators}
    ordered = [specs[operator.name] for operator in graph.operators]
    counts = [scenario.batches.executors] if scenario.batches else [spec.instances for spec in ordered]
    most = max(settings.bounds.most, *counts)
    own = tuple(_tabulate(specs[one.name], most, f"operators.{one.name}") for one in graph.operators)
    experiment = Experiment(
        name=path.stem,
        scenario=scenario,
        graph=graph,
        settings=settings,
        offered=_sum_offered(scenario, graph, path.parent),
        capacities=tuple(_apply_limit(spec, table) for spec, table in zip(ordered, own, strict=True)),
        own_capacities=own,
        initial=np.array(counts, dtype=np.int64),
    )
    if experiment.shares_slots:
        return replace(experiment, capacities=(largest_rates(experiment, most),))
    records = float(experiment.offered.sum())
    if scenario.latency == "events" and records > MOST_FOLLOWED:
        raise BadInput(
            f"latency: events follows single records, and {records:,.0f} are more than {MOST_FOLLOWED:,}; "
            "use estimated, or a lower rate"
        )
    return experiment


def _build_graph(scenario: Scenario) -> LogicalGraph:
    known = [*scenario.sources, *scenario.operators]
    edges = [(origin, name) for name, spec in scenario.operators.items() for origin in spec.inputs]
    for origin, name in edges:
        if origin not in known:
            raise BadInput(f"operators.{name}.inputs: no operator {origin!r}{suggest_name(origin, known)}")
    operators = [Operator(name) for name in scenario.sources]
    operators += [Operator(name, spec.scalable) for name, spec in scenario.operators.items()]
    try:
        return LogicalGraph(operators, edges)
    except BadGraph as error:
        raise BadInput(f"operators: {error}") from None


def _load_settings(scenario: Scenario) -> Settings:
    for name in NO_SETTINGS_OF_A_SCENARIO & scenario.settings.keys():
        raise BadInput(f"settings.{name}: has no meaning in a simulation")
    try:
        settings = load_settings(None, {}, {}, scenario.settings)
    except BadSettings as error:
        raise BadInput(f"settings: {str(error).removeprefix('argument ')}") from None
    if not settings.manager.policy_interval.is_integer():
        raise BadInput("settings.policy_interval: not a whole number of seconds")
    return settings


def _tabulate(spec: SourceSpec | OperatorSpec, most: int, key: str) -> Floats:
    if isinstance(spec, SourceSpec):
        return tabulate_capacity(Linear(), spec.service_time, most)
    is_table = isinstance(spec.curve, Table)
    if is_table == (spec.service_time is not None):
        told = "a table of capacities already says what a record costs" if is_table else "is missing"
        raise BadInput(f"{key}.service_time: {told}")
    # the operator is full as soon as its busiest instance is
    return tabulate_capacity(spec.curve, spec.service_time, most) / _fullest(spec, most)


def _apply_limit(spec: SourceSpec | OperatorSpec, own: Floats) -> Floats:
    limit = getattr(spec, "limit", None)
    return own if limit is None else np.minimum(own, limit / _fullest(spec, len(own) - 1))


def _fullest(spec: SourceSpec | OperatorSpec, most: int) -> Floats:
    """Return how many times the average the busiest of 0, 1, ... instances gets."""
    return 1 + limit_skew(np.arange(most + 1, dtype=np.int64), getattr(spec, "skew", 0.0))


def _sum_offered(scenario: Scenario, graph: LogicalGraph, folder: Path) -> Floats:
    """Return the records offered in each second to each operator; recordings are in `folder`."""
    offered = np.zeros((int(scenario.duration), len(graph.operators)))
    for name, spec in scenario.sources.items():
        try:
            profile = _load_profile(spec.rate, folder)
        except BadInput as error:
            raise BadInput(f"sources.{name}.rate: {error}") from None
        sums = [profile.cumulative(float(second)) for second in range(len(offered) + 1)]
        offered[:, graph.index[name]] = np.maximum(np.diff(np.array(sums)), 0.0)
    return offered


def _load_profile(rate: str | CsvRate, folder: Path) -> Profile:
    if isinstance(rate, str):
        return parse_profile(rate, lambda named: read_text(folder / named))
    file = folder / rate.csv
    rows = list(csv.DictReader(StringIO(read_text(file))))
    if not rows:
        raise BadInput(f"{file} has no rows")
    columns = []
    for column in (rate.time, rate.rate):
        if column not in rows[0]:
            raise BadInput(f"{file} has no column {column!r}; it has {', '.join(map(str, rows[0]))}")
        texts = [row[column] for row in rows]
        columns.append(
            [_parse_number(one, f"{file} line {line}, {column}") for line, one in enumerate(texts, 2)]
        )
    times, rates = columns
    return Steps.of([(time - times[0], value * rate.scale) for time, value in zip(times, rates, strict=True)])


def _parse_number(text: str | None, where: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise BadInput(f"{where}: {text!r} is not a number") from None


def explain_error(error: ValidationError) -> str:
    """Say the first thing wrong, with its key; an unknown key or curve suggests the nearest known one."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    key = ".".join(location)
    if first["type"] == "extra_forbidden":
        beside = (location[-2], location[0]) if len(location) > 1 else ()
        model = next((MODELS[name] for name in beside if name in MODELS), Scenario)
        return f"{key}: unknown key{suggest_name(location[-1], model.model_fields)}"
    if first["type"] == "union_tag_invalid":
        kind = str(first["ctx"]["tag"])
        return f"{key}.kind: unknown curve {kind!r}{suggest_name(kind, ('linear', 'usl', 'table'))}"
    if location[-2:] == ["distribution", "kind"]:
        kind = str(first["input"])
        return f"{key}: unknown distribution {kind!r}{suggest_name(kind, KINDS)}"
    message = cut_text(first["msg"].removeprefix("Value error, "), LONGEST_SHOWN)
    got = "" if first["type"] == "missing" else f", got {cut_text(repr(first['input']), LONGEST_SHOWN)}"
    return f"{key}: {message[:1].lower()}{message[1:]}{got}"


def _check_parts(scenario: Scenario, graph: LogicalGraph) -> None:
    """Raise BadInput with the key of the first part that does not fit the others."""
    _check_extent(scenario, graph)
    for number, slow in enumerate(scenario.slowdowns):
        _check_operator(f"slowdowns.{number}", slow.operator, graph.index)
        if slow.end <= slow.start:
            raise BadInput(f"slowdowns.{number}.end: {slow.end:g} is not after the start at {slow.start:g}")
    known = ["executors"] if scenario.batches is not None else list(graph.index)
    for number, failure in enumerate(scenario.failures):
        _check_operator(f"failures.{number}", failure.operator, known)
        if (failure.start is None) == (failure.every is None):
            raise BadInput(f"failures.{number}: give either start or every")
    if scenario.latency == "events":
        _check_events(scenario)
    if scenario.batches is not None:
        _check_batches(scenario)


def _check_extent(scenario: Scenario, graph: LogicalGraph) -> None:
    """Reject what leaves nothing to decide, and what no memory holds."""
    if scenario.batches is None and not any(spec.scalable for spec in scenario.operators.values()):
        raise BadInput("operators: none of them can be scaled, so there is nothing to decide")
    seconds, operators = int(scenario.duration), len(graph.operators)
    if seconds * operators > MOST_OPERATOR_SECONDS:
        most = MOST_OPERATOR_SECONDS // operators // 86400
        raise BadInput(
            f"duration: {seconds:,} s of {operators} operators are too much to simulate at once; "
            f"take at most {most} days"
        )


def _check_operator(key: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise BadInput(f"{key}.operator: no operator {name!r}{suggest_name(name, known)}")


def _check_events(scenario: Scenario) -> None:
    if scenario.batches is not None:
        raise BadInput("latency: batches have the latency of their records anyway; leave events out")
    for name, source in scenario.sources.items():
        for key, given in (
            ("service_time", source.service_time),
            ("keeps_backlog", not source.keeps_backlog),
        ):
            if given:
                raise BadInput(f"sources.{name}.{key}: with latency: events a source is read without delay")
    for name, operator in scenario.operators.items():
        for key, given in (("queue", operator.queue), ("skew", operator.skew)):
            if given:
                raise BadInput(f"operators.{name}.{key}: latency: events knows neither bounds nor skew")


def _check_batches(scenario: Scenario) -> None:
    if len(scenario.sources) > 1:
        raise BadInput("sources: batches are simulated with one source")
    for name, spec in scenario.operators.items():
        for key, given in (("queue", spec.queue), ("limit", spec.limit)):
            if given is not None:
                raise BadInput(
                    f"operators.{name}.{key}: has no meaning in batches, which take all that is there"
                )
        if isinstance(spec.curve, Table):
            raise BadInput(f"operators.{name}.curve: a table says nothing of slots that stages share")
