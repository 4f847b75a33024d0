"""A budget of changes for a whole fleet: a bad release of a policy does not move everything at once."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats
from penstock.decide.sage.columns import SIZE
from penstock.errors import BadInput
from penstock.fleet.files import read_bounded, write_whole
from penstock.fleet.places import HOUR, FleetDirectory, parse_decision, read_decision_lines

log = logging.getLogger(__name__)


class FleetBudget:
    """Lets so many decisions an hour pass; the rest is put off, and decided again when it has run out.

    What was spent is read from the decisions themselves, of earlier batches alone: a batch that is done again
    after a crash, also by another controller, passes the same decisions.
    """

    def __init__(self, directory: FleetDirectory, per_hour: int | None = None) -> None:
        """Without `per_hour` all pass."""
        self._directory, self._per_hour = directory, per_hour
        self._spent: dict[int, list[float]] | None = None

    def admit(self, batch: int, decisions: pa.Table) -> pa.Table:
        """Return the decisions of a batch that the budget leaves: what grows first, then the oldest."""
        if self._per_hour is None or not decisions.num_rows:
            return decisions
        now = float(np.max(decisions["at"].to_numpy()))
        if self._spent is None:
            self._spent = self._read_spent(batch)
        self._spent = {
            number: times
            for number, times in self._spent.items()
            if number < batch and any(at > now - HOUR for at in times)
        }
        used = sum(at > now - HOUR for times in self._spent.values() for at in times)
        kept = choose_decisions(decisions, self._per_hour - used)
        self._spent[batch] = kept["at"].to_pylist()
        self._tell(batch, now, used + kept.num_rows, decisions.num_rows - kept.num_rows)
        return kept

    def _read_spent(self, batch: int) -> dict[int, list[float]]:
        spent: dict[int, list[float]] = {}
        for number, path in self._directory.recent_files():
            try:
                rows = [parse_decision(line) for line in read_decision_lines(path)] if number < batch else []
            except BadInput as error:
                # one that is not the controller's spends nothing
                log.warning("the budget passes over %s", error)
                continue
            times = [row.get("at") for row in rows]
            spent[number] = [float(at) for at in times if isinstance(at, int | float)]
        return spent

    def _tell(self, batch: int, now: float, used: int, put_off: int) -> None:
        told = {"at": now, "per_hour": self._per_hour, "used": used, "put_off": put_off}
        write_whole(self._directory.budget, orjson.dumps(told))
        if put_off:
            log.warning(
                "batch %d: %d decisions are put off: the fleet's budget is %d changes an hour",
                batch,
                put_off,
                self._per_hour,
            )


def read_budget(path: Path) -> dict[str, float] | None:
    """Return how much was spent at the last decision; None without a budget, BadInput for other files."""
    if not path.exists():
        return None
    try:
        told = orjson.loads(read_bounded(path))
        return {name: float(told[name]) for name in ("at", "per_hour", "used", "put_off")}
    except (BadInput, OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: not a budget of the fleet: {error}: remove it") from None


def choose_decisions(decisions: pa.Table, most: int) -> pa.Table:
    """Return so many decisions at most, in their order: first those that give more of anything."""
    if decisions.num_rows <= most:
        return decisions
    order = np.lexsort((decisions["at"].to_numpy(), ~_grows(decisions)))
    return decisions.take(pa.array(np.sort(order[: max(0, most)])))


def _grows(decisions: pa.Table) -> NDArray[np.bool_]:
    held, after = (_stack(decisions, one) for one in ("held", "after"))
    grows: NDArray[np.bool_] = np.any(after > held, axis=1)
    return grows


def _stack(decisions: pa.Table, which: str) -> Floats:
    return np.column_stack([decisions[f"{which}_{size}"].to_numpy() for size in SIZE])
