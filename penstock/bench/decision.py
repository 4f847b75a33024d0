"""How long one DS2 evaluation takes, and how that grows with the graph."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from penstock.bench.report import BenchReport, Row, Target
from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.window import ApplicationWindow, Execution, QueryWindow, SourceRate
from penstock.decide.ds2 import Ds2Policy
from penstock.decide.ds2_settings import Ds2Settings

SIZES = (10, 100, 1_000, 10_000)
QUICK_SIZES = (10, 100, 1_000)
INSTANCES = 20
EDGES_PER_OPERATOR = 1.5
SEED = 7
GROWTH_FROM = 100
"""Below this, the fixed cost of a call hides how the work grows."""


def run(quick: bool, progress: Callable[[str], None]) -> BenchReport:
    """Time whole proposals, from the columns of a window to the parallelism of every operator."""
    rows: list[Row] = []
    for operators in QUICK_SIZES if quick else SIZES:
        progress(f"{operators} operators with {INSTANCES} instances each")
        rows.append(_measure(operators, seconds_to_spend=0.3 if quick else 2.0))
    seconds = {row["operators"]: row["seconds"] for row in rows}
    growth = _growth_exponent(seconds)
    return BenchReport(
        bench="decision",
        summary={"growth_exponent": growth, "seconds_at_100_operators": seconds[100]},
        results=rows,
        targets=[
            Target("100 operators, seconds", "< 0.001", seconds[100]),
            Target("growth exponent (1 is linear)", "<= 1.1", growth),
        ],
        notes=[
            "seconds is the median of repeated evaluations of the same graph, first_seconds the first one, "
            "which also numbers the graph's edges",
            f"the exponent is the slope of log seconds over log operators, from {GROWTH_FROM} operators up",
        ],
    )


def _measure(operators: int, seconds_to_spend: float) -> Row:
    window = random_window(operators, INSTANCES, SEED)
    policy = Ds2Policy(Ds2Settings(utilisation=1.0))
    first = _timed(policy, window)
    repeats = int(np.clip(seconds_to_spend / first, 5, 2_000))
    times = [_timed(policy, window) for _ in range(repeats)]
    return {
        "operators": operators,
        "instances": operators * INSTANCES,
        "seconds": float(np.median(times)),
        "first_seconds": first,
        "repeats": repeats,
    }


def _timed(policy: Ds2Policy, window: ApplicationWindow) -> float:
    start = time.perf_counter()
    policy.propose(window)
    return time.perf_counter() - start


def _growth_exponent(seconds: dict[int, float]) -> float:
    sizes = np.array([size for size in seconds if size >= GROWTH_FROM], dtype=np.float64)
    taken = np.array([seconds[int(size)] for size in sizes])
    return float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])


def random_window(operators: int, instances: int, seed: int) -> ApplicationWindow:
    """A seeded random graph with its metrics, all operators busy."""
    random = np.random.default_rng(seed)
    graph = random_graph(operators, random)
    metrics = random_metrics(graph, instances, random)
    sources = {name: SourceRate(1_000.0, 900.0, 10_000.0) for name in graph.sources}
    query = QueryWindow("bench", "bench", graph, metrics, sources)
    held = {operator.name: instances for operator in graph.operators}
    return ApplicationWindow("bench", 0.0, 10.0, Execution.PER_OPERATOR, held, (query,))


def random_graph(operators: int, random: np.random.Generator) -> LogicalGraph:
    """A connected acyclic graph with about one and a half edges per operator."""
    names = [f"operator-{number}" for number in range(operators)]
    pairs = {(int(random.integers(target)), target) for target in range(1, operators)}
    while len(pairs) < min(EDGES_PER_OPERATOR * operators, operators * (operators - 1) / 2):
        origin, target = sorted(random.integers(operators, size=2).tolist())
        if origin < target:
            pairs.add((origin, target))
    return LogicalGraph(names, [(names[origin], names[target]) for origin, target in sorted(pairs)])


def random_metrics(graph: LogicalGraph, instances: int, random: np.random.Generator) -> MetricWindow:
    """Ten seconds in which every instance did some work; selectivities fall, so that rates stay finite."""
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
