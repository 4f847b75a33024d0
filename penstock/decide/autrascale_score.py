"""AuTraScale's benefit score, the samples its model starts from, and the next size to try (section III)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.gaussian import GaussianProcess, fit

Size = tuple[int, ...]
"""Parallelism of each unit, in the order of the units."""

MOST_ENUMERATED = 256
"""Up to so many sizes are judged one by one; of a larger lattice a bounded choice is judged."""

CLIMBS = 1
"""Rounds in which the neighbours of the best size found are judged as well; samples guide the rest."""

RARE = 1e-12
"""What an instance costs where the promises are alike: less than any expected improvement that matters."""

CERTAIN = 1e-12
"""A standard deviation up to this is rounding, and stands for none."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The lattice [k', P_max]: what throughput needs, up to the most that may be tried of any unit."""

    floor: Size
    most: int

    @property
    def count(self) -> int:
        """Sizes in the space; a Python integer, since ten units make more than any array holds."""
        return math.prod(self.most - low + 1 for low in self.floor)


def score(
    size: Size, base: Size, latency_seconds: float, target_seconds: float, latency_weight: float
) -> float:
    """Equation 4: how well the latency target is met, and how little more is used than throughput needs."""
    met = 1.0 if latency_seconds <= target_seconds else target_seconds / latency_seconds
    return latency_weight * met + (1 - latency_weight) * allocation_ratio(size, base)


def allocation_ratio(size: Size, base: Size) -> float:
    """Mean of k'ᵢ/kᵢ: the share of the resources that throughput needs (below equation 8)."""
    return sum(low / held for low, held in zip(base, size, strict=True)) / len(size)


def features(sizes: Integers, base: Size) -> Floats:
    """Model inputs k'ᵢ/kᵢ in (0, 1]: the resource score is linear in them, and rates become comparable."""
    scaled: Floats = np.asarray(base, dtype=np.float64) / sizes
    return scaled


def bootstrap_sizes(space: SearchSpace, uniform_samples: int) -> tuple[Size, ...]:
    """Samples of both kinds: all units alike in M even steps up to P_max, and one unit at P_max (III-D)."""
    start, units = max(space.floor), len(space.floor)
    steps = np.linspace(start, space.most, uniform_samples).round().astype(int).tolist()
    alike = [(step,) * units for step in steps]
    single = [
        tuple(space.most if unit == raised else low for unit, low in enumerate(space.floor))
        for raised in range(units)
    ]
    return tuple(dict.fromkeys([*alike, *single]))


@dataclass(frozen=True, slots=True)
class ScoreModel:
    """A Gaussian process over the score whose prior mean is the resource part of it.

    That part of equation 4 is known for every size; what samples must teach is the rest.
    """

    process: GaussianProcess
    latency_weight: float

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the score at each row of `features`."""
        mean, deviation = self.process.predict(points)
        return mean + resource_part(points, self.latency_weight), deviation


def resource_part(points: Floats, latency_weight: float) -> Floats:
    """The second term of equation 4, from the inputs of the model."""
    part: Floats = ((1 - latency_weight) / points.shape[1]) * points.sum(axis=1)
    return part


def fit_scores(points: Floats, scores: Floats, latency_weight: float) -> ScoreModel:
    """Fit the model to scores."""
    process = fit(points, scores - resource_part(points, latency_weight))
    return ScoreModel(process, latency_weight)


def expected_improvement(mean: Floats, deviation: Floats, best: float, exploration: float) -> Floats:
    """Equations 5 to 7: how much better than the best known a size is expected to be."""
    gain = mean - best - exploration
    certain = deviation <= CERTAIN
    ratio = np.minimum(np.maximum(gain / np.where(certain, 1.0, deviation), -40.0), 40.0)
    below = np.array([math.erf(value) for value in (ratio / math.sqrt(2.0)).tolist()])
    density = np.exp(-0.5 * ratio * ratio) / math.sqrt(2.0 * math.pi)
    result: Floats = np.where(certain, 0.0, gain * 0.5 * (1.0 + below) + deviation * density)
    return np.maximum(result, 0.0)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The size that promises most, and how much better than the best known it is expected to score."""

    size: Size
    improvement: float
    expected_score: float


def recommend(
    model: ScoreModel,
    base: Size,
    space: SearchSpace,
    best: float,
    exploration: float,
    seed: int,
    is_open: Callable[[Size], bool],
) -> Recommendation | None:
    """Of the sizes open to trial the one with the largest expected improvement (Algorithm 1, line 12)."""
    found: Recommendation | None = None
    candidates = _candidates(model, base, space, seed)
    rounds = 1 if space.count <= MOST_ENUMERATED else 1 + CLIMBS
    for _ in range(rounds):
        judged = _best_of(model, base, candidates, best, exploration, is_open)
        if judged is None or (found is not None and judged.improvement <= found.improvement):
            break
        found = judged
        candidates = _neighbours(np.array(found.size), space)
    return found


def _best_of(
    model: ScoreModel,
    base: Size,
    candidates: Integers,
    best: float,
    exploration: float,
    is_open: Callable[[Size], bool],
) -> Recommendation | None:
    mean, deviation = model.predict(features(candidates, base))
    gains = expected_improvement(mean, deviation, best, exploration)
    # of two promises alike the cheaper one, then the first: the same answer for the same samples
    ranked = np.argsort(RARE * candidates.sum(axis=1) - gains, kind="stable")
    for number in ranked.tolist():
        size = tuple(candidates[number].tolist())
        if is_open(size):
            return Recommendation(size, float(gains[number]), float(mean[number]))
    return None


def _candidates(model: ScoreModel, base: Size, space: SearchSpace, seed: int) -> Integers:
    drawn = _drawn(space, seed)
    if space.count <= MOST_ENUMERATED:
        return drawn
    inputs = model.process.inputs
    scores = model.process.values + resource_part(inputs, model.latency_weight)
    best = np.rint(np.array(base) / inputs[scores.argmax()]).astype(np.int64)
    return np.concatenate([drawn, _neighbours(best, space)])


@lru_cache(maxsize=64)
def _drawn(space: SearchSpace, seed: int) -> Integers:
    """All of a small lattice, a seeded choice from a large one; the same serves every step of a search."""
    if space.count <= MOST_ENUMERATED:
        axes = [np.arange(low, space.most + 1) for low in space.floor]
        every: Integers = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        return every
    floor, count = np.array(space.floor), MOST_ENUMERATED // 2
    random = np.random.default_rng(seed)
    # even in the model's inputs, so that the cheap end of the lattice is looked at as closely as it matters
    spread = random.uniform(floor / space.most, 1.0, (count, len(floor)))
    # few units far from the floor: most latency comes from one or two operators
    kept = random.random(spread.shape) < random.uniform(0.0, 1.0, (count, 1))
    sizes = np.where(kept, floor, np.rint(floor / spread)).astype(np.int64)
    chosen: Integers = np.clip(np.concatenate([floor[None, :], sizes]), floor, space.most)
    return chosen


def _neighbours(centre: Integers, space: SearchSpace) -> Integers:
    """One unit a step or a stride away; strides grow with the size, so that a large lattice is crossed."""
    unit = np.eye(len(centre), dtype=np.int64)
    stride = unit * np.maximum(1, centre // 4)
    moved = centre + np.concatenate([unit, -unit, stride, -stride])
    inside: Integers = np.minimum(np.maximum(moved, np.array(space.floor)), space.most)
    return inside
