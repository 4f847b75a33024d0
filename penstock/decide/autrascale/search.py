"""AuTraScale's models of the score, and the choice of the next size: Algorithms 1 and 2."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.autrascale.score import (
    NextTrial,
    ScoreModel,
    SearchSpace,
    Size,
    bootstrap_sizes,
    fit_process,
    fit_scores,
    recommend,
    scale_sizes,
    score_size,
)
from penstock.decide.autrascale.settings import AutraScaleSettings
from penstock.decide.goals import SizeBounds

HOUR = 3600.0

LEAST_PRIOR_SAMPLES = 3
"""A model of fewer samples than this knows too little to be learned from."""


@dataclass(frozen=True, slots=True)
class ScoringGoal:
    """The goal by which samples are scored: the latency target l_t and the weight α."""

    target_seconds: float
    latency_weight: float

    def of(self, model: RateModel, size: Size) -> float:
        """Score a size that was tried at this rate by equation 4."""
        assert model.base is not None
        return score_size(size, model.base, model.latencies[size], self.target_seconds, self.latency_weight)

    def best(self, model: RateModel) -> Size:
        """Return the best score's size among those that meet the target, or among all if none does."""
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
        """Tell whether so many changes fit into the hour before now."""
        while self.made and not now - HOUR < self.made[0] <= now:
            self.made.popleft()
        return len(self.made) + changes <= self.per_hour

    def next_at(self, changes: int) -> float:
        """Return when so many changes will be allowed, as far as is known now."""
        in_the_way = len(self.made) + changes - self.per_hour
        return self.made[min(in_the_way, len(self.made)) - 1] + HOUR


def count_changes(held: Size, wanted: Size) -> int:
    """Count the changes from one size to another: growth takes one, each reduction at most halves.

    That is how the guardrails part a change; where they do not, it takes fewer.
    """
    pairs = list(zip(held, wanted, strict=True))
    halvings = [math.ceil(math.log2(old / new)) for old, new in pairs if new < old]
    return any(new > old for old, new in pairs) + max(halvings, default=0)


def bound_search(base: Size, settings: AutraScaleSettings, bounds: SizeBounds) -> SearchSpace:
    """Bound the search from what throughput needs to P_max, or to the multiple that may be paid for."""
    widest = int(np.ceil(settings.search_factor * max(base)))
    return SearchSpace(base, max(*base, min(bounds.most, widest)))


def choose_next_size(
    model: RateModel,
    prior: RateModel | None,
    scoring: ScoringGoal,
    settings: AutraScaleSettings,
    bounds: SizeBounds,
    is_open: Callable[[Size], bool],
) -> NextTrial | None:
    """Choose by Algorithm 2 with a model of a near rate; else the first samples, then Algorithm 1."""
    assert model.base is not None
    space = bound_search(model.base, settings, bounds)
    bootstrap = bootstrap_sizes(space, settings.uniform_samples)
    enough = settings.switch_after or len(bootstrap) + 1
    if prior is None:
        untried = [size for size in bootstrap if is_open(size)]
        if untried:
            cheapest = min(untried, key=lambda size: (sum(size), size))
            return NextTrial(cheapest, float("inf"), float("nan"))
    if prior is not None and len(model.latencies) < enough:
        process, best = transfer_model(model, prior, bootstrap, scoring)
    else:
        process, best = train_model(model, scoring)
    return recommend(process, model.base, space, best, settings.exploration, settings.seed, is_open)


class SizeChooser:
    """Chooses the next size, once for the same samples: a search that must wait asks at every window."""

    def __init__(self, settings: AutraScaleSettings, bounds: SizeBounds) -> None:
        self._settings, self._bounds = settings, bounds
        self._asked: tuple[object, ...] | None = None
        self._found: NextTrial | None = None

    def choose(
        self, model: RateModel, prior: RateModel | None, scoring: ScoringGoal, best: Size, refused: Set[Size]
    ) -> NextTrial | None:
        """Choose among sizes neither tried nor refused from which the budget leads back to the best."""
        samples = [(one.base, tuple(one.latencies.items())) for one in (model, prior) if one is not None]
        asked = (*samples, scoring, best, frozenset(refused))
        if asked != self._asked:
            closed = {*model.latencies, *refused}

            def is_open(size: Size) -> bool:
                changes = count_changes(best, size) + count_changes(size, best)
                return size not in closed and changes <= self._settings.changes_per_hour

            self._found = choose_next_size(model, prior, scoring, self._settings, self._bounds, is_open)
            self._asked = asked
        return self._found


def train_model(model: RateModel, scoring: ScoringGoal) -> tuple[ScoreModel, float]:
    """Fit the samples really taken at this rate; also return their best score (Algorithm 1)."""
    inputs, scores = _list_samples(model, scoring)
    return fit_scores(inputs, scores, scoring.latency_weight), float(scores.max())


def transfer_model(
    model: RateModel, prior: RateModel, bootstrap: Collection[Size], scoring: ScoringGoal
) -> tuple[ScoreModel, float]:
    """Add a model of what the other rate's model misses to it, in place of bootstrap runs (Algorithm 2)."""
    assert model.base is not None
    inputs, scores = _list_samples(model, scoring)
    known, _ = train_model(prior, scoring)
    residual = fit_process(inputs, scores - known.predict(inputs)[0])
    unseen = [size for size in bootstrap if size not in model.latencies]
    if unseen:
        points = scale_sizes(np.array(unseen), model.base)
        estimates = known.predict(points)[0] + residual.predict(points)[0]
        # no size scores above 1, whatever an extrapolation says
        inputs, scores = np.concatenate([inputs, points]), np.append(scores, np.clip(estimates, 0.0, 1.0))
    return fit_scores(inputs, scores, scoring.latency_weight), float(scores.max())


def _list_samples(model: RateModel, scoring: ScoringGoal) -> tuple[Floats, Floats]:
    assert model.base is not None
    sizes = list(model.latencies)
    scores = np.array([scoring.of(model, size) for size in sizes])
    return scale_sizes(np.array(sizes), model.base), scores


ANY_RUN = ""
"""The application of a model that an earlier run has left: the next one that asks for it takes it over."""

MODELS_KEPT = 64
"""Rates drift without end; of the models beyond this the one that was used longest ago is forgotten."""


@dataclass(slots=True)
class RateModel:
    """A model of one application at one offered rate.

    `base` is the least size that gives all the throughput there is (k'), once it is found; `limited_at` is
    when something outside was found to limit it; `best` is the size that the search ended with.
    Latencies are kept instead of scores, so that another target or weight can still use them.
    """

    application: str
    units: tuple[str, ...]
    rate: float
    base: Size | None = None
    limited_at: float | None = None
    best: Size | None = None
    latencies: dict[Size, float] = field(default_factory=dict)

    def restart(self) -> None:
        """Forget all but the rate: the operators are no longer as they were measured."""
        self.base = self.limited_at = self.best = None
        self.latencies = {}


class ModelLibrary:
    """Finds the model of a rate, or the nearest one to learn from."""

    def __init__(self, rate_tolerance: float) -> None:
        self._tolerance = rate_tolerance
        self.models: tuple[RateModel, ...] = ()

    def at(
        self, application: str, units: tuple[str, ...], rate: float, current: RateModel | None = None
    ) -> RateModel:
        """Return the model of this rate, a new one if none is within the tolerance; it counts as used.

        The current one stays while it will do: a rate between two models must not go from one to the other.
        """
        near = [model for model in self._of(application, units) if self.is_same(model.rate, rate)]
        nearest = min(near, key=lambda model: abs(model.rate - rate), default=None)
        found = next((model for model in near if model is current), nearest)
        if found is None:
            found = RateModel(application, units, rate)
        else:
            found.application = application
        others = (model for model in self.models if model is not found)
        self.models = (*others, found)[-MODELS_KEPT:]
        return found

    def nearest(self, model: RateModel, least_samples: int) -> RateModel | None:
        """Find the model of the closest other rate of the same application (section III-F)."""
        others = [
            other
            for other in self._of(model.application, model.units)
            if other is not model and other.base is not None and len(other.latencies) >= least_samples
        ]
        return min(others, key=lambda other: abs(other.rate - model.rate), default=None)

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return each model by operators and rate, which mean the same in an application's next run.

        Rates within the tolerance share a key, so that rates that drift do not fill a journal.
        """
        return {self._key(model): _write_model(model) for model in self.models if model.base is not None}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take over what `learned` gave, whatever the run was called; says what cannot be read."""
        notes, found = [], []
        for key, entry in known.items():
            try:
                found.append(_read_model(entry))
            except (KeyError, TypeError, ValueError) as error:
                notes.append(f"{key}: the model cannot be read: {error!r}")
        self.models = (*found, *self.models)[-MODELS_KEPT:]
        return tuple(notes)

    def _key(self, model: RateModel) -> str:
        step = round(math.log(model.rate) / math.log1p(self._tolerance))
        return f"{','.join(model.units)}@{step}"

    def _of(self, application: str, units: tuple[str, ...]) -> Iterable[RateModel]:
        ours = (application, ANY_RUN)
        return (one for one in self.models if one.application in ours and one.units == units)

    def is_same(self, rate: float, other: float) -> bool:
        """Tell whether two rates are within the tolerance of each other."""
        return abs(rate - other) <= self._tolerance * max(rate, other)


def _write_model(model: RateModel) -> dict[str, Any]:
    return {
        "units": list(model.units),
        "rate": model.rate,
        "base": None if model.base is None else list(model.base),
        "limited_at": model.limited_at,
        "best": None if model.best is None else list(model.best),
        "samples": [
            {"parallelism": list(size), "latency_seconds": seconds}
            for size, seconds in model.latencies.items()
        ],
    }


def _read_model(entry: Mapping[str, Any]) -> RateModel:
    units = tuple(str(unit) for unit in entry["units"])
    limited_at = entry["limited_at"]
    return RateModel(
        application=ANY_RUN,
        units=units,
        rate=_read_positive(entry["rate"]),
        base=None if entry["base"] is None else _read_size(entry["base"], units),
        limited_at=None if limited_at is None else float(limited_at),
        best=None if entry["best"] is None else _read_size(entry["best"], units),
        latencies={
            _read_size(sample["parallelism"], units): _read_positive(sample["latency_seconds"])
            for sample in entry["samples"]
        },
    )


def _read_size(values: Iterable[Any], units: tuple[str, ...]) -> Size:
    size = tuple(int(value) for value in values)
    if len(size) != len(units) or min(size) < 1:
        raise ValueError(f"{size} is no size of {len(units)} units")
    return size


def _read_positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{value} is not a positive number")
    return number
