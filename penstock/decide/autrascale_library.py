"""What AuTraScale has learned, by application, operators and rate: plain data that a journal can keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.decide.autrascale_score import Size
from penstock.errors import BadInput

VERSION = 1
ANY_RUN = ""
"""The application of a model that an earlier run has left: the next one that asks for it takes it over."""

MODELS_KEPT = 64
"""Rates drift without end; of the models beyond this the one that was used longest ago is forgotten."""


@dataclass(slots=True)
class RateModel:
    """What is known of one application at one offered rate.

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
        self._models: list[RateModel] = []

    def at(
        self, application: str, units: tuple[str, ...], rate: float, current: RateModel | None = None
    ) -> RateModel:
        """The model of this rate, a new one where none is within the tolerance; it counts as used.

        The current one stays while it will do: a rate between two models must not go from one to the other.
        """
        near = [model for model in self._of(application, units) if self.is_same(model.rate, rate)]
        nearest = min(near, key=lambda model: abs(model.rate - rate), default=None)
        found = next((model for model in near if model is current), nearest)
        if found is None:
            found = RateModel(application, units, rate)
        else:
            self._models = [model for model in self._models if model is not found]
            found.application = application
        self._models = [*self._models, found][-MODELS_KEPT:]
        return found

    def nearest(self, model: RateModel, least_samples: int) -> RateModel | None:
        """The model of another rate of the same application that is closest to this one (section III-F)."""
        others = [
            other
            for other in self._of(model.application, model.units)
            if other is not model and other.base is not None and len(other.latencies) >= least_samples
        ]
        return min(others, key=lambda other: abs(other.rate - model.rate), default=None)

    def dump(self) -> dict[str, Any]:
        """All models as plain data, the one used last at the end."""
        return {"version": VERSION, "models": [_dumped(model) for model in self._models]}

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over what `dump` gave; anything else is an error, and nothing is changed."""
        if not isinstance(data, Mapping) or data.get("version") != VERSION:
            raise BadInput(f"the model library is not of version {VERSION}")
        try:
            self._models = [_loaded(entry) for entry in data["models"]][-MODELS_KEPT:]
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"the model library cannot be read: {error!r}") from error

    def learned(self) -> dict[str, dict[str, Any]]:
        """Each model by its operators and its rate, which mean the same in the next run of an application.

        Rates within the tolerance share a key, so that rates that drift do not fill a journal.
        """
        return {self._key(model): _dumped(model) for model in self._models if model.base is not None}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take over what `learned` gave, whatever the run was called; says what cannot be read."""
        notes: list[str] = []
        found: list[RateModel] = []
        for key, entry in known.items():
            try:
                found.append(_loaded({**entry, "application": ANY_RUN}))
            except (KeyError, TypeError, ValueError) as error:
                notes.append(f"{key}: the model cannot be read: {error!r}")
        self._models = [*found, *self._models][-MODELS_KEPT:]
        return tuple(notes)

    def _key(self, model: RateModel) -> str:
        step = round(math.log(model.rate) / math.log1p(self._tolerance))
        return f"{','.join(model.units)}@{step}"

    def _of(self, application: str, units: tuple[str, ...]) -> Iterable[RateModel]:
        ours = (application, ANY_RUN)
        return (one for one in self._models if one.application in ours and one.units == units)

    def is_same(self, rate: float, other: float) -> bool:
        """Whether two rates are within the tolerance of each other."""
        return abs(rate - other) <= self._tolerance * max(rate, other)


def _dumped(model: RateModel) -> dict[str, Any]:
    return {
        "application": model.application,
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


def _loaded(entry: Mapping[str, Any]) -> RateModel:
    units = tuple(str(unit) for unit in entry["units"])
    limited_at = entry["limited_at"]
    return RateModel(
        application=str(entry["application"]),
        units=units,
        rate=_positive(entry["rate"]),
        base=None if entry["base"] is None else _size(entry["base"], units),
        limited_at=None if limited_at is None else float(limited_at),
        best=None if entry["best"] is None else _size(entry["best"], units),
        latencies={
            _size(sample["parallelism"], units): _positive(sample["latency_seconds"])
            for sample in entry["samples"]
        },
    )


def _size(values: Iterable[Any], units: tuple[str, ...]) -> Size:
    size = tuple(int(value) for value in values)
    if len(size) != len(units) or min(size) < 1:
        raise ValueError(f"{size} is no size of {len(units)} units")
    return size


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{value} is not a positive number")
    return number
