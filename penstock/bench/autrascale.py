"""CPU time of AuTraScale's algorithms for 2 to 10 operators, beside table IV of its paper."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from penstock.bench.report import BenchReport, Row, Target
from penstock.decide.autrascale_library import RateModel
from penstock.decide.autrascale_score import SearchSpace, bootstrap_sizes, recommend
from penstock.decide.autrascale_search import Scoring, next_size, search_space, trained
from penstock.decide.autrascale_settings import AutraScaleSettings

OPERATORS = (2, 4, 6, 8, 10)
SEED = 7
OWN_SAMPLES = 3
"""Real samples at the new rate when a model is transferred to it."""

PUBLISHED: dict[str, tuple[float, ...]] = {
    "train_s": (0.042, 0.053, 0.065, 0.076, 0.088),
    "use_s": (0.0008, 0.0006, 0.0006, 0.0006, 0.0006),
    "transfer_s": (0.070, 0.081, 0.094, 0.104, 0.116),
}
"""Table IV: Alg1_train, Alg1_use and Alg2, for the numbers of operators above."""

SETTINGS = AutraScaleSettings(latency_target_seconds=0.2, most_parallelism=40)
SCORING = Scoring(0.2, SETTINGS.latency_weight)


def run(quick: bool, progress: Callable[[str], None]) -> BenchReport:
    """Time training, use and transfer on the bootstrap samples of random applications."""
    rows: list[Row] = []
    for operators in OPERATORS:
        progress(f"{operators} operators")
        rows.append(_measure(operators, seconds_to_spend=0.1 if quick else 1.0))
    return BenchReport(
        bench="autrascale",
        summary={f"largest_{key}": max(row[key] for row in rows) for key in PUBLISHED},
        results=rows,
        targets=[
            Target(f"{key}, {row['operators']} operators", f"< {figures[number]}", row[key])
            for key, figures in PUBLISHED.items()
            for number, row in enumerate(rows)
        ],
        published={"operators": list(OPERATORS), **{key: list(value) for key, value in PUBLISHED.items()}},
        notes=[
            "CPU seconds of the process, mean over repeated calls; published figures are from other machines",
            "train: fit the model to the bootstrap set; use: the next size from a fitted model; transfer: "
            f"Algorithm 2 whole, with {OWN_SAMPLES} real samples at the new rate, both models fitted anew",
        ],
    )


def _measure(operators: int, seconds_to_spend: float) -> Row:
    random = np.random.default_rng(SEED)
    known, space = random_model(operators, 1_000.0, random)
    model, best = trained(known, SCORING)
    new, _ = random_model(operators, 1_200.0, random)
    new.latencies = dict(list(new.latencies.items())[:OWN_SAMPLES])
    base, tried = space.floor, set(known.latencies)

    def use() -> object:
        return recommend(model, base, space, best, SETTINGS.exploration, SEED, lambda size: size not in tried)

    return {
        "operators": operators,
        "samples": len(known.latencies),
        "train_s": _cpu_seconds(lambda: trained(known, SCORING), seconds_to_spend),
        "use_s": _cpu_seconds(use, seconds_to_spend),
        "transfer_s": _cpu_seconds(
            lambda: next_size(new, known, SCORING, SETTINGS, lambda size: size not in new.latencies),
            seconds_to_spend,
        ),
    }


def _cpu_seconds(call: Callable[[], object], seconds_to_spend: float) -> float:
    """Mean CPU time of a call; a first one is left out, since it also loads what is loaded once."""
    call()
    calls, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds_to_spend:
        call()
        calls += 1
    return spent / calls


def random_model(operators: int, rate: float, random: np.random.Generator) -> tuple[RateModel, SearchSpace]:
    """A model with its whole bootstrap set, of a chain of operators that queue."""
    base = tuple(random.integers(2, 13, operators).tolist())
    space = search_space(base, SETTINGS)
    work = random.uniform(0.005, 0.03, operators)
    busy = 0.95 * np.array(base)
    latencies = {
        size: float((work / (1 - busy / np.array(size))).sum())
        for size in bootstrap_sizes(space, SETTINGS.uniform_samples)
    }
    units = tuple(f"operator-{number}" for number in range(operators))
    return RateModel("bench", units, rate, base, None, None, latencies), space
