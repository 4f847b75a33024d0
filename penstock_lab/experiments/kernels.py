"""Speed of decisions: one DS2 evaluation, and AuTraScale's algorithms."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.window import OperatorQuery, OperatorWindow, SourceRate
from penstock.decide.autrascale.score import SearchSpace, bootstrap_sizes, recommend
from penstock.decide.autrascale.search import (
    RateModel,
    ScoringGoal,
    bound_search,
    choose_next_size,
    train_model,
)
from penstock.decide.autrascale.settings import AutraScaleSettings
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals, SizeBounds
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, fit_growth

SEED = 7
DECISION_SIZES, QUICK_DECISION_SIZES = (10, 100, 1_000, 10_000), (10, 100, 1_000)
INSTANCES = 20
EDGES_PER_OPERATOR = 1.5
GROWTH_FROM = 100
"""Below this many operators, the fixed cost of a call hides how the work grows."""
AUTRASCALE_OPERATORS = (2, 4, 6, 8, 10)
OWN_SAMPLES = 3
"""Real samples at the new rate when a model is transferred to it."""
AUTRASCALE, BOUNDS = AutraScaleSettings(), SizeBounds(most=40)
SCORING = ScoringGoal(0.2, AUTRASCALE.latency_weight)


def run_decision(extent: Extent, progress: Progress) -> Measurement:
    """Time whole proposals, from the columns of a window to the parallelism of every operator."""
    rows: list[Row] = []
    for operators in QUICK_DECISION_SIZES if extent.quick else DECISION_SIZES:
        progress(f"{operators} operators with {INSTANCES} instances each")
        rows.append(_time_decision(operators, seconds_to_spend=0.3 if extent.quick else 2.0))
    seconds = {row["operators"]: row["seconds"] for row in rows}
    growth = fit_growth({size: taken for size, taken in seconds.items() if size >= GROWTH_FROM})
    summary = {"growth_exponent": growth, "seconds_at_100_operators": seconds[100]}
    notes = [
        "seconds is the median of repeated evaluations of the same graph, first_seconds the first one, "
        "which also numbers the graph's edges",
        f"the exponent is the slope of log seconds over log operators, from {GROWTH_FROM} operators up",
    ]
    return Measurement(rows, summary, notes)


def _time_decision(operators: int, seconds_to_spend: float) -> Row:
    window = make_window(operators, INSTANCES, SEED)
    policy = Ds2Policy(Goals(utilisation=1.0))
    first = _time_proposal(policy, window)
    repeats = int(np.clip(seconds_to_spend / first, 5, 2_000))
    times = [_time_proposal(policy, window) for _ in range(repeats)]
    return {
        "operators": operators,
        "instances": operators * INSTANCES,
        "seconds": float(np.median(times)),
        "first_seconds": first,
        "repeats": repeats,
    }


def _time_proposal(policy: Ds2Policy, window: OperatorWindow) -> float:
    start = time.perf_counter()
    policy.propose(window)
    return time.perf_counter() - start


def make_window(operators: int, instances: int, seed: int) -> OperatorWindow:
    """Make a seeded random graph with its metrics, all operators busy."""
    random = np.random.default_rng(seed)
    graph = make_graph(operators, random)
    metrics = make_metrics(graph, instances, random)
    sources = {name: SourceRate(1_000.0, 900.0, 10_000.0) for name in graph.sources}
    query = OperatorQuery("bench", "bench", graph, sources, metrics)
    held = {operator.name: instances for operator in graph.operators}
    return OperatorWindow("bench", 0.0, 10.0, held, (query,))


def make_graph(operators: int, random: np.random.Generator) -> LogicalGraph:
    """Make a connected acyclic graph with about one and a half edges per operator."""
    names = [f"operator-{number}" for number in range(operators)]
    pairs = {(int(random.integers(target)), target) for target in range(1, operators)}
    while len(pairs) < min(EDGES_PER_OPERATOR * operators, operators * (operators - 1) / 2):
        origin, target = sorted(random.integers(operators, size=2).tolist())
        if origin < target:
            pairs.add((origin, target))
    return LogicalGraph(names, [(names[origin], names[target]) for origin, target in sorted(pairs)])


def make_metrics(graph: LogicalGraph, instances: int, random: np.random.Generator) -> MetricWindow:
    """Make ten seconds in which every instance works; selectivities fall, so that rates stay finite."""
    count = len(graph.operators) * instances
    records = random.uniform(500.0, 1_500.0, count)
    return MetricWindow(
        start=0.0,
        end=10.0,
        operator=np.repeat(np.arange(len(graph.operators)), instances),
        records_in=records,
        records_out=records * random.uniform(0.1, 0.6, count),
        useful_seconds=random.uniform(1.0, 9.0, count),
        waiting_seconds=np.ones(count),
    )


def run_autrascale(extent: Extent, progress: Progress) -> Measurement:
    """Time training, use and transfer on the bootstrap samples of random applications."""
    rows: list[Row] = []
    for operators in AUTRASCALE_OPERATORS:
        progress(f"{operators} operators")
        rows.append(_time_autrascale(operators, seconds_to_spend=0.1 if extent.quick else 1.0))
    summary = {f"largest_{key}": max(row[key] for row in rows) for key in ("train_s", "use_s", "transfer_s")}
    notes = [
        "CPU seconds of the process, mean over repeated calls; published figures are from other machines",
        "train: fit the model to the bootstrap set; use: the next size from a fitted model; transfer: "
        f"Algorithm 2 whole, with {OWN_SAMPLES} real samples at the new rate, both models fitted anew",
    ]
    return Measurement(rows, summary, notes)


def _time_autrascale(operators: int, seconds_to_spend: float) -> Row:
    random = np.random.default_rng(SEED)
    known, space = make_model(operators, 1_000.0, random)
    model, best = train_model(known, SCORING)
    new, _ = make_model(operators, 1_200.0, random)
    new.latencies = dict(list(new.latencies.items())[:OWN_SAMPLES])
    base, tried = space.floor, set(known.latencies)
    calls: dict[str, Callable[[], object]] = {
        "train_s": lambda: train_model(known, SCORING),
        "use_s": lambda: recommend(
            model, base, space, best, AUTRASCALE.exploration, SEED, lambda size: size not in tried
        ),
        "transfer_s": lambda: choose_next_size(
            new, known, SCORING, AUTRASCALE, BOUNDS, lambda size: size not in new.latencies
        ),
    }
    taken = {key: _time_call(call, seconds_to_spend) for key, call in calls.items()}
    return {"operators": operators, "samples": len(known.latencies), **taken}


def _time_call(call: Callable[[], object], seconds_to_spend: float) -> float:
    """Return the mean CPU time of a call, without the first one, which also loads what is loaded once."""
    call()
    calls, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds_to_spend:
        call()
        calls += 1
    return spent / calls


def make_model(operators: int, rate: float, random: np.random.Generator) -> tuple[RateModel, SearchSpace]:
    """Make a model with its whole bootstrap set, of a chain of operators that queue."""
    base = tuple(random.integers(2, 13, operators).tolist())
    space = bound_search(base, AUTRASCALE, BOUNDS)
    work = random.uniform(0.005, 0.03, operators)
    busy = 0.95 * np.array(base)
    latencies = {
        size: float((work / (1 - busy / np.array(size))).sum())
        for size in bootstrap_sizes(space, AUTRASCALE.uniform_samples)
    }
    units = tuple(f"operator-{number}" for number in range(operators))
    return RateModel("bench", units, rate, base, None, None, latencies), space
