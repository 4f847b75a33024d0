"""AuTraScale's models of the score, and the choice of the next size: Algorithms 1 and 2."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.autrascale_library import RateModel
from penstock.decide.autrascale_score import (
    Recommendation,
    ScoreModel,
    SearchSpace,
    Size,
    bootstrap_sizes,
    features,
    fit_scores,
    recommend,
    score,
)
from penstock.decide.autrascale_settings import AutraScaleSettings
from penstock.decide.gaussian import fit

HOUR = 3600.0

LEAST_PRIOR_SAMPLES = 3
"""A model of fewer samples than this knows too little to be learned from."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How samples are judged: the latency target l_t and the weight α."""

    target_seconds: float
    latency_weight: float

    def of(self, model: RateModel, size: Size) -> float:
        """Equation 4 for a size that was tried at this rate."""
        assert model.base is not None
        return score(size, model.base, model.latencies[size], self.target_seconds, self.latency_weight)

    def best(self, model: RateModel) -> Size:
        """Of the sizes that meet the target, or of all where none does, the one that scores best."""
        met = [size for size, seconds in model.latencies.items() if seconds <= self.target_seconds]
        return max(met or model.latencies, key=lambda size: (self.of(model, size), -sum(size), size))


@dataclass(slots=True)
class ChangeBudget:
    """Changes made for the sake of the search in the last hour; time is passed in."""

    per_hour: int
    made: deque[float] = field(default_factory=deque)

    def note(self, now: float) -> None:
        """Count a change that was made."""
        self.made.append(now)

    def allows(self, now: float, changes: int) -> bool:
        """Whether there is room for so many changes in the hour before now."""
        while self.made and not now - HOUR < self.made[0] <= now:
            self.made.popleft()
        return len(self.made) + changes <= self.per_hour

    def next_at(self, changes: int) -> float:
        """When so many changes will be allowed, as far as is known now."""
        in_the_way = len(self.made) + changes - self.per_hour
        return self.made[min(in_the_way, len(self.made)) - 1] + HOUR


def changes_between(held: Size, wanted: Size) -> int:
    """How many changes lead from one size to another: growth is made at once, reductions by at most half.

    That is how the guardrails part a change; where they do not, it takes fewer.
    """
    pairs = list(zip(held, wanted, strict=True))
    halvings = [math.ceil(math.log2(old / new)) for old, new in pairs if new < old]
    return any(new > old for old, new in pairs) + max(halvings, default=0)


def search_space(base: Size, settings: AutraScaleSettings) -> SearchSpace:
    """From what throughput needs to P_max, or to the multiple of it that may be paid for."""
    widest = int(np.ceil(settings.search_factor * max(base)))
    return SearchSpace(base, max(*base, min(settings.most_parallelism, widest)))


def next_size(
    model: RateModel,
    prior: RateModel | None,
    scoring: Scoring,
    settings: AutraScaleSettings,
    is_open: Callable[[Size], bool],
) -> Recommendation | None:
    """What to try next: with a model of a near rate Algorithm 2, else the bootstrap set, then Algorithm 1."""
    assert model.base is not None
    space = search_space(model.base, settings)
    bootstrap = bootstrap_sizes(space, settings.uniform_samples)
    enough = settings.switch_after or len(bootstrap) + 1
    if prior is None:
        untried = [size for size in bootstrap if is_open(size)]
        if untried:
            cheapest = min(untried, key=lambda size: (sum(size), size))
            return Recommendation(cheapest, float("inf"), float("nan"))
    if prior is not None and len(model.latencies) < enough:
        process, best = transferred(model, prior, bootstrap, scoring)
    else:
        process, best = trained(model, scoring)
    return recommend(process, model.base, space, best, settings.exploration, settings.seed, is_open)


def trained(model: RateModel, scoring: Scoring) -> tuple[ScoreModel, float]:
    """The model of the samples really taken at this rate, and the best score among them (Algorithm 1)."""
    inputs, scores = _samples(model, scoring)
    return fit_scores(inputs, scores, scoring.latency_weight), float(scores.max())


def transferred(
    model: RateModel, prior: RateModel, bootstrap: Collection[Size], scoring: Scoring
) -> tuple[ScoreModel, float]:
    """Algorithm 2: the other rate's model plus a model of what it misses stands in for bootstrap runs."""
    assert model.base is not None
    inputs, scores = _samples(model, scoring)
    known, _ = trained(prior, scoring)
    residual = fit(inputs, scores - known.predict(inputs)[0])
    unseen = [size for size in bootstrap if size not in model.latencies]
    if unseen:
        points = features(np.array(unseen), model.base)
        estimates = known.predict(points)[0] + residual.predict(points)[0]
        # no size scores above 1, whatever an extrapolation says
        inputs, scores = np.concatenate([inputs, points]), np.append(scores, np.clip(estimates, 0.0, 1.0))
    return fit_scores(inputs, scores, scoring.latency_weight), float(scores.max())


def _samples(model: RateModel, scoring: Scoring) -> tuple[Floats, Floats]:
    assert model.base is not None
    sizes = list(model.latencies)
    scores = np.array([scoring.of(model, size) for size in sizes])
    return features(np.array(sizes), model.base), scores
