"""Overrides of a fleet's applications: in a journal, and in a snapshot that the job's tasks read.

`penstock override` writes the journal, as for an application that decides alone. The driver takes a snapshot
between rounds, so that no task needs the journal; while that is away the last snapshot counts.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from penstock.decide.sage.columns import pack_overrides
from penstock.decide.sage.metrics import Rule
from penstock.decide.sage.overrides import Said
from penstock.errors import BadInput, PenstockError
from penstock.fleet.decision import check_text
from penstock.fleet.files import read_bounded, write_whole
from penstock.journal.overrides import recall_all_overrides
from penstock.journal.store import journal_at
from penstock.units.texts import show_value

log = logging.getLogger(__name__)

LONGEST_NAME = 1_000
ORDERS = ("pinned", "vetoed", "forced", "force_id")
"""Columns of what operators said, which are joined to windows before a round."""
ORDERED_BY = "ordered_by"
"""The column of who said it."""


class Order(NamedTuple):
    """The overrides of one application, as columns keep them; another `force_id` makes another force."""

    pinned: int
    vetoed: int
    forced: int
    force_id: int
    by: str


Orders = Mapping[str, Order]


class FleetOverrides:
    """The journal in which operators speak, and the snapshot of it."""

    def __init__(self, journal: str | Path, snapshot: Path) -> None:
        self._journal, self.snapshot = journal, snapshot

    def refresh(self) -> None:
        """Take a new snapshot; words that cannot be used are logged and told by `penstock fleet status`."""
        try:
            found, problems = self._recall()
        except PenstockError as error:
            orders, _ = read_snapshot(self.snapshot)
            self._write(orders, f"{error}; what was said before goes on to count")
            return
        orders = {}
        for name, said in found.items():
            try:
                orders[name] = order_of(said, f"overrides of {name}")
            except BadInput as error:
                problems[name] = str(error)
        self._write(orders, "; ".join(problems.values()))

    def _recall(self) -> tuple[Mapping[str, Said], dict[str, str]]:
        if "://" not in str(self._journal) and not Path(self._journal).exists():
            return {}, {}
        with closing(journal_at(self._journal, create=False)) as opened:
            return recall_all_overrides(opened)

    def _write(self, orders: Orders, problem: str) -> None:
        with suppress(BadInput):
            if (orders, problem) == read_snapshot(self.snapshot):
                return
        if problem:
            log.warning("not all that operators said counts: %s", problem)
        plain = {name: order._asdict() for name, order in orders.items()}
        write_whole(self.snapshot, orjson.dumps({"problem": problem, "orders": plain}))


def read_snapshot(path: Path | None) -> tuple[Orders, str]:
    """Return what counts now, and why some of it does not; no file says nothing."""
    if path is None or not path.exists():
        return {}, ""
    try:
        known = orjson.loads(read_bounded(path))
        orders = {name: _read_order(order) for name, order in known["orders"].items()}
        return orders, _read_text(known["problem"])
    except (BadInput, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: not a snapshot of overrides: {error}: remove it") from None


def _read_order(plain: Mapping[str, Any]) -> Order:
    order = Order(**plain)
    for number in order[:-1]:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
            raise ValueError(f"{show_value(number)} is no order")
    return order._replace(by=_read_text(order.by))


def _read_text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{show_value(given)} is no text")
    return given


def order_of(said: Said, place: str) -> Order:
    """Return what was said as columns keep it; a value cannot be set by a fleet, and is refused."""
    if said.values:
        raise BadInput(f"{place}: pin: in a fleet a pin keeps what is held and sets no value")
    if said.overrides.by:
        # it gets into reasons, which agents refuse when they cannot be shown
        check_text(said.overrides.by, f"{place}: by", LONGEST_NAME)
    force_id = zlib.crc32(said.force_id.encode()) + 1 if said.overrides.forced is not Rule.NONE else 0
    return Order(*pack_overrides(said.overrides), force_id, said.overrides.by)
