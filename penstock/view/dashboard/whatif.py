"""What if: a row for each number of executors, foreseen from the costs that an application has fitted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.dataflow.costs.foresight import Foreseen, LikelyRange, Outlook, foresee, read_outlook
from penstock.errors import PenstockError
from penstock.runtime.pace import count_executors_needed
from penstock.view import figures
from penstock.view.dashboard.board import Seen, SocketBoard

LEAST_SHOWN, MOST_SHOWN = 8, 64
KEPT = 64

Plain = Mapping[str, Any]


class WhatIfs:
    """The rows of each application, computed once for all browsers whenever its costs may have changed."""

    def __init__(self, board: SocketBoard) -> None:
        self._board = board
        self._known: dict[str, tuple[object, dict[str, Any]]] = {}

    async def find(self, seen: Seen) -> dict[str, Any]:
        """Return the rows of one application; those of before where it does not answer."""
        version, known = self._known.get(seen.key, (None, {}))
        if seen.ended or seen.trouble or version == seen.status.get("timeline", object()):
            return known
        try:
            plain = (await self._board.ask(seen.key, "outlooks"))["outlooks"]
            made = await asyncio.to_thread(lay_out, seen.status, [read_outlook(one) for one in plain])
        except PenstockError:
            # an older Penstock in the driver does not know the question
            made = {}
        self._known[seen.key] = seen.status.get("timeline"), made
        while len(self._known) > KEPT:
            del self._known[next(iter(self._known))]
        return made


def lay_out(status: Plain, outlooks: Sequence[Outlook]) -> dict[str, Any]:
    """Foresee one executor to a few more than are needed; nothing where no costs are fitted."""
    held, slots = status.get("executors"), status.get("slots")
    if not outlooks or not held or not slots:
        return {}
    per_executor = max(1, round(slots / held))
    most = _choose_most(status, held)
    foreseen = [foresee(outlooks, executors * per_executor) for executors in range(1, most + 1)]
    period = max(outlook.period_seconds for outlook in outlooks)
    return {
        "held": held,
        "period": period,
        "rows": [_write_row(number, one, held) for number, one in enumerate(foreseen, start=1)],
    }


def _choose_most(status: Plain, held: int) -> int:
    wanted = 2 * max(held, int(count_executors_needed(status) or 0))
    allowed = int((status.get("bounds") or {}).get("most", MOST_SHOWN))
    return max(held, min(allowed, MOST_SHOWN, max(LEAST_SHOWN, wanted)))


def _write_row(executors: int, foreseen: Foreseen, held: int) -> dict[str, Any]:
    batch, used, left = foreseen.batch_seconds, foreseen.utilisation, foreseen.backlog_records
    growing = " and growing" if foreseen.grows else ""
    change = executors / held - 1
    return {
        "executors": executors,
        "batch_seconds": [batch.low, batch.usual, batch.high],
        "batch": figures.seconds(batch.usual) + growing,
        "batch_range": _write_range(batch, figures.seconds),
        "utilisation": figures.share(used.usual),
        "utilisation_range": _write_range(used, figures.share),
        "backlog": f"{figures.count(left.usual)} records",
        "backlog_range": _write_range(left, figures.count),
        "cost": f"{figures.count(foreseen.slots * 24)} slot-hours a day",
        "cost_change": "as now" if not change else f"{change:+.0%} to now".replace("-", "−"),
        "fits": used.usual <= 1 and not foreseen.grows,
    }


def _write_range(span: LikelyRange, write: Any) -> str:
    low, high = write(span.low), write(span.high)
    return "" if low == high else f"{low} to {high}"
