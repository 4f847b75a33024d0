"""Gaussian process regression with a Matérn 5/2 kernel, for the few tens of samples that a tuner has."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.errors import BadInput

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
        """Posterior mean and standard deviation at each row of `points`."""
        scaled = points / self.lengths
        squares = np.einsum("ij,ij->i", scaled, scaled)[:, None] + self.squares
        cross = _matern(np.maximum(squares - 2.0 * (scaled @ self.scaled.T), 0.0))
        solved = cross @ self.inverse_factor.T
        explained = np.einsum("ij,ij->i", solved, solved)
        deviation: Floats = np.sqrt(self.variance * np.maximum(1.0 - explained, 0.0))
        return self.mean + cross @ self.weights, deviation


def correlation(left: Floats, right: Floats, lengths: Floats) -> Floats:
    """Matérn 5/2 correlation between the rows of two arrays, with one length scale for each column."""
    one, other = left / lengths, right / lengths
    squares = np.einsum("ij,ij->i", one, one)[:, None] + np.einsum("ij,ij->i", other, other)
    return _matern(np.maximum(squares - 2.0 * (one @ other.T), 0.0))


def fit(inputs: Floats, values: Floats) -> GaussianProcess:
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
    best = max(candidates, key=lambda pair: _profiled(gaps, centred, *pair))
    lengths, noise = _stretched(gaps, centred, *best), best[1]
    return condition(inputs, values, lengths, noise)


def condition(
    inputs: Floats, values: Floats, lengths: Floats, noise: float, variance: float | None = None
) -> GaussianProcess:
    """The posterior for given parameters; the variance is the most likely one unless it is given."""
    mean = float(values.mean())
    matrix = correlation(inputs, inputs, lengths) + noise * np.eye(len(values))
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


def _stretched(gaps: Floats, centred: Floats, lengths: Floats, noise: float) -> Floats:
    """One round over the inputs: one that matters little gets a longer scale, one that decides a shorter."""
    best, reached = lengths, _profiled(gaps, centred, lengths, noise)
    for column in range(len(lengths) if len(lengths) > 1 else 0):
        for factor in STRETCHES:
            tried = best.copy()
            tried[column] = np.clip(lengths[column] * factor, LENGTHS[0] / 2, LENGTHS[-1] * 2)
            likelihood = _profiled(gaps, centred, tried, noise)
            if likelihood > reached:
                best, reached = tried, likelihood
    return best


def _profiled(gaps: Floats, centred: Floats, lengths: Floats, noise: float) -> float:
    """Log marginal likelihood up to a constant, with the variance at its most likely value."""
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
