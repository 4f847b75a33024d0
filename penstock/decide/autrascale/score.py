"""AuTraScale's benefit score, its Gaussian process, and the next size to try (section III)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.errors import BadInput

Size = tuple[int, ...]
"""Parallelism of each unit, in the order of the units."""

MOST_ENUMERATED = 256
"""Up to so many sizes are judged one by one; of a larger lattice a bounded choice is judged."""

CLIMBS = 1
"""Rounds in which the neighbours of the best size found are judged as well; samples guide the rest."""

RARE = 1e-12
"""Cost of an instance that breaks ties; smaller than any expected improvement that matters."""

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


def score_size(
    size: Size, base: Size, latency_seconds: float, target_seconds: float, latency_weight: float
) -> float:
    """Score a size by equation 4: how well it meets the latency target, and how little it uses."""
    met = 1.0 if latency_seconds <= target_seconds else target_seconds / latency_seconds
    return latency_weight * met + (1 - latency_weight) * allocation_ratio(size, base)


def allocation_ratio(size: Size, base: Size) -> float:
    """Return the mean of k'ᵢ/kᵢ: the share of the resources that throughput needs (below equation 8)."""
    return sum(low / held for low, held in zip(base, size, strict=True)) / len(size)


def scale_sizes(sizes: Integers, base: Size) -> Floats:
    """Turn sizes into inputs k'ᵢ/kᵢ in (0, 1], which are comparable between rates."""
    scaled: Floats = np.asarray(base, dtype=np.float64) / sizes
    return scaled


def bootstrap_sizes(space: SearchSpace, uniform_samples: int) -> tuple[Size, ...]:
    """List the first samples: all units alike in M even steps up to P_max, and one at P_max (III-D)."""
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
        """Predict mean and standard deviation of the score at each row of inputs."""
        mean, deviation = self.process.predict(points)
        return mean + resource_part(points, self.latency_weight), deviation


def resource_part(points: Floats, latency_weight: float) -> Floats:
    """Compute the second term of equation 4 from the inputs of the model."""
    part: Floats = ((1 - latency_weight) / points.shape[1]) * points.sum(axis=1)
    return part


def fit_scores(points: Floats, scores: Floats, latency_weight: float) -> ScoreModel:
    """Fit the model to scores."""
    process = fit_process(points, scores - resource_part(points, latency_weight))
    return ScoreModel(process, latency_weight)


def measure_improvement(mean: Floats, deviation: Floats, best: float, exploration: float) -> Floats:
    """Compute by equations 5 to 7 how much better than the best known a size is expected to be."""
    from scipy.special import ndtr  # takes longer to load than all policies, and no other one needs it

    gain = mean - best - exploration
    certain = deviation <= CERTAIN
    ratio = np.minimum(np.maximum(gain / np.where(certain, 1.0, deviation), -40.0), 40.0)
    density = np.exp(-0.5 * ratio * ratio) / math.sqrt(2.0 * math.pi)
    result: Floats = np.where(certain, 0.0, gain * ndtr(ratio) + deviation * density)
    return np.maximum(result, 0.0)


@dataclass(frozen=True, slots=True)
class NextTrial:
    """The size to try next, and by how much it is expected to score better than the best known one."""

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
) -> NextTrial | None:
    """Choose the open size with the largest expected improvement (Algorithm 1, line 12)."""
    found: NextTrial | None = None
    candidates = _list_candidates(model, base, space, seed)
    rounds = 1 if space.count <= MOST_ENUMERATED else 1 + CLIMBS
    for _ in range(rounds):
        judged = _choose_best(model, base, candidates, best, exploration, is_open)
        if judged is None or (found is not None and judged.improvement <= found.improvement):
            break
        found = judged
        candidates = _list_neighbours(np.array(found.size), space)
    return found


def _choose_best(
    model: ScoreModel,
    base: Size,
    candidates: Integers,
    best: float,
    exploration: float,
    is_open: Callable[[Size], bool],
) -> NextTrial | None:
    mean, deviation = model.predict(scale_sizes(candidates, base))
    gains = measure_improvement(mean, deviation, best, exploration)
    # of two promises alike the cheaper one, then the first: the same answer for the same samples
    ranked = np.argsort(RARE * candidates.sum(axis=1) - gains, kind="stable")
    for number in ranked.tolist():
        size = tuple(candidates[number].tolist())
        if is_open(size):
            return NextTrial(size, float(gains[number]), float(mean[number]))
    return None


def _list_candidates(model: ScoreModel, base: Size, space: SearchSpace, seed: int) -> Integers:
    drawn = _draw_sizes(space, seed)
    if space.count <= MOST_ENUMERATED:
        return drawn
    inputs = model.process.inputs
    scores = model.process.values + resource_part(inputs, model.latency_weight)
    best = np.rint(np.array(base) / inputs[scores.argmax()]).astype(np.int64)
    return np.concatenate([drawn, _list_neighbours(best, space)])


@lru_cache(maxsize=64)
def _draw_sizes(space: SearchSpace, seed: int) -> Integers:
    """Draw all of a small lattice, or a seeded choice of a large one that serves a whole search."""
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


def _list_neighbours(centre: Integers, space: SearchSpace) -> Integers:
    """List the sizes with one unit a step or a stride away; strides grow with the size."""
    unit = np.eye(len(centre), dtype=np.int64)
    stride = unit * np.maximum(1, centre // 4)
    moved = centre + np.concatenate([unit, -unit, stride, -stride])
    inside: Integers = np.minimum(np.maximum(moved, np.array(space.floor)), space.most)
    return inside


LENGTHS = (0.1, 0.2, 0.35, 0.6, 1.0, 2.0, 4.0)
"""Length scales that are tried, for inputs in [0, 1]: from a tenth of the range to nearly a plane."""

NOISES = (1e-4, 1e-2, 1e-1)
"""Variance of the noise over that of the signal; the least also keeps the Cholesky factor well defined."""

STRETCHES = (0.4, 2.5)
"""Factors by which the length of a single input is tried against the others."""

LEAST_VARIANCE = 1e-8
"""Samples that are all alike would make a model that is certain everywhere; this leaves it some doubt."""

ROOT_FIVE = math.sqrt(5.0)


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """A fitted process; `predict` gives the mean and the standard deviation of the noise-free function."""

    inputs: Floats
    values: Floats
    lengths: Floats
    scaled: Floats
    squares: Floats
    """Inputs over their lengths, and the squared norms of these: kept, since every prediction needs them."""
    noise: float
    variance: float
    mean: float
    weights: Floats
    inverse_factor: Floats
    """Inverse of the lower Cholesky factor of the correlation matrix: the cheapest form to predict with."""
    log_likelihood: float

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Predict the posterior mean and standard deviation at each row of `points`."""
        scaled = points / self.lengths
        squares = np.einsum("ij,ij->i", scaled, scaled)[:, None] + self.squares
        cross = _matern(np.maximum(squares - 2.0 * (scaled @ self.scaled.T), 0.0))
        solved = cross @ self.inverse_factor.T
        explained = np.einsum("ij,ij->i", solved, solved)
        deviation: Floats = np.sqrt(self.variance * np.maximum(1.0 - explained, 0.0))
        return self.mean + cross @ self.weights, deviation


def correlate(left: Floats, right: Floats, lengths: Floats) -> Floats:
    """Compute Matérn 5/2 between the rows of two arrays, with one length scale for each column."""
    one, other = left / lengths, right / lengths
    squares = np.einsum("ij,ij->i", one, one)[:, None] + np.einsum("ij,ij->i", other, other)
    return _matern(np.maximum(squares - 2.0 * (one @ other.T), 0.0))


def fit_process(inputs: Floats, values: Floats) -> GaussianProcess:
    """Choose length scales and noise by the marginal likelihood, over a bounded grid, and condition on data.

    First one length for all inputs, then each input on its own while the others stay: some forty small
    factorisations, and no local optimiser that could run away on three samples.
    """
    inputs, values = np.asarray(inputs, dtype=np.float64), np.asarray(values, dtype=np.float64)
    _check(inputs, values)
    shape = np.ones(inputs.shape[1])
    candidates = [(length * shape, noise) for noise in NOISES for length in LENGTHS]
    gaps = (inputs[:, None, :] - inputs[None, :, :]) ** 2
    centred = values - values.mean()
    best = max(candidates, key=lambda pair: _measure_likelihood(gaps, centred, *pair))
    lengths, noise = _stretch_lengths(gaps, centred, *best), best[1]
    return condition(inputs, values, lengths, noise)


def condition(
    inputs: Floats, values: Floats, lengths: Floats, noise: float, variance: float | None = None
) -> GaussianProcess:
    """Condition on the data for given parameters; the variance is the most likely one unless given."""
    mean = float(values.mean())
    matrix = correlate(inputs, inputs, lengths) + noise * np.eye(len(values))
    inverse: Floats = np.linalg.inv(np.linalg.cholesky(matrix))
    whitened = inverse @ (values - mean)
    if variance is None:
        variance = max(float(whitened @ whitened) / len(values), LEAST_VARIANCE)
    scaled = inputs / lengths
    log_determinant = -2.0 * float(np.log(np.diag(inverse)).sum()) + len(values) * math.log(variance)
    fitted = float(whitened @ whitened) / variance
    return GaussianProcess(
        inputs=inputs,
        values=values,
        lengths=lengths,
        scaled=scaled,
        squares=np.einsum("ij,ij->i", scaled, scaled),
        noise=noise,
        variance=variance,
        mean=mean,
        weights=inverse.T @ whitened,
        inverse_factor=inverse,
        log_likelihood=-0.5 * (fitted + log_determinant + len(values) * math.log(2.0 * math.pi)),
    )


def _stretch_lengths(gaps: Floats, centred: Floats, lengths: Floats, noise: float) -> Floats:
    """Give each input in turn a longer or a shorter scale where that is more likely."""
    best, reached = lengths, _measure_likelihood(gaps, centred, lengths, noise)
    for column in range(len(lengths) if len(lengths) > 1 else 0):
        for factor in STRETCHES:
            tried = best.copy()
            tried[column] = np.clip(lengths[column] * factor, LENGTHS[0] / 2, LENGTHS[-1] * 2)
            likelihood = _measure_likelihood(gaps, centred, tried, noise)
            if likelihood > reached:
                best, reached = tried, likelihood
    return best


def _measure_likelihood(gaps: Floats, centred: Floats, lengths: Floats, noise: float) -> float:
    """Return the log marginal likelihood up to a constant, at the most likely variance."""
    matrix = _matern(gaps @ (1.0 / lengths**2))
    matrix.flat[:: len(matrix) + 1] += noise
    factor = np.linalg.cholesky(matrix)
    whitened = np.linalg.solve(factor, centred)
    variance = max(float(whitened @ whitened) / len(centred), LEAST_VARIANCE)
    return -0.5 * len(centred) * math.log(variance) - float(np.log(np.diag(factor)).sum())


def _matern(squared_distance: Floats) -> Floats:
    scaled = ROOT_FIVE * np.sqrt(squared_distance)
    result: Floats = (1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled)
    return result


def _check(inputs: Floats, values: Floats) -> None:
    if inputs.ndim != 2 or len(inputs) != len(values) or len(values) == 0:
        raise BadInput(
            f"a model needs one row of inputs for each value, not {inputs.shape} for {len(values)}"
        )
    if not (np.isfinite(inputs).all() and np.isfinite(values).all()):
        raise BadInput("a model cannot be fitted to values that are not finite")
