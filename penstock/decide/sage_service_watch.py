"""An application's backlog beside what its remote services publish, and how they go together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.sage_sample import backlog_of
from penstock.decide.sage_services import ASPECTS, Correlation, ServiceHistory, strongest

SAMPLES = 30
LAGS = (0, 1, 2, 3)
"""In windows: a slow service shows in the backlog of the same or of one of the next windows."""


class Reading(Protocol):
    """What a service published."""

    @property
    def latency_seconds(self) -> float:
        """Of a call."""

    @property
    def error_ratio(self) -> float:
        """Of calls that failed."""

    @property
    def throughput_per_second(self) -> float:
        """Calls."""


class Board(Protocol):
    """Where services' readings are kept."""

    def newest(self, now: float, not_older_than: float) -> Mapping[str, Reading]:
        """Service → its newest reading."""


class ServiceWatch:
    """One sample a window; called with each window in turn."""

    def __init__(self, board: Board, lags: Sequence[int] = LAGS, samples: int = SAMPLES) -> None:
        self._board, self._lags = board, lags
        # of the longest lag there must be pairs, too
        samples = max(samples, 2 * max(lags, default=0))
        self._backlogs: deque[float] = deque(maxlen=samples)
        self._readings: deque[Mapping[str, Reading]] = deque(maxlen=samples)

    def __call__(self, window: ApplicationWindow) -> float:
        """The largest correlation of the backlog's growth with a service; NaN where there is none."""
        found = self.look(window)
        return found.coefficient if found is not None else math.nan

    def look(self, window: ApplicationWindow) -> Correlation | None:
        """The service that explains the backlog best."""
        self._backlogs.append(backlog_of(window))
        # a reading from before the window says nothing about it
        self._readings.append(self._board.newest(window.end, window.end - window.start))
        names = sorted({name for readings in self._heard() for name in readings})
        return strongest(
            np.array(self._backlogs, dtype=np.float64), [self._history(name) for name in names], self._lags
        )

    def _heard(self) -> list[Mapping[str, Reading]]:
        """The readings that may explain this window: a service that fell silent before them does not."""
        return list(self._readings)[-1 - max(self._lags, default=0) :]

    def _history(self, name: str) -> ServiceHistory:
        columns = {
            aspect: np.array([_value(readings.get(name), aspect) for readings in self._readings])
            for aspect in ASPECTS
        }
        return ServiceHistory(name, **columns)


def _value(reading: Reading | None, aspect: str) -> float:
    return float(getattr(reading, aspect)) if reading is not None else math.nan
