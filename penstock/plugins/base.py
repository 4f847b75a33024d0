"""The base of a policy from elsewhere: it says what is missing, and decides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, final

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, SlotWindow
from penstock.decide.policy import Proposal
from penstock.decide.readings import (
    count_held,
    find_shared_operator,
    find_unheld_operator,
    find_unread_source,
)
from penstock.decide.registry import OPERATORS, SLOTS
from penstock.units.section import Section

__all__ = ["OPERATORS", "SLOTS", "PolicyBase"]


class PolicyBase(ABC):
    """A policy with two methods: `find_missing` tells why a window cannot be decided by, `decide` decides.

    `name` is what `--policy` calls it. `sizes` is what it can size: SLOTS, OPERATORS or both. `sections` are
    the sections of Penstock's settings that its constructor takes, in this order. The texts are what
    `penstock policies` prints. It may keep what it learns; it reads no clock and does no I/O.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    needs: ClassVar[str] = ""
    promises: ClassVar[str] = ""
    choose_when: ClassVar[str] = ""
    sizes: ClassVar[frozenset[str]] = frozenset({SLOTS, OPERATORS})
    sections: ClassVar[tuple[type[Section], ...]] = ()

    @abstractmethod
    def decide(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Decide by a window in which nothing is missing."""

    def find_missing(self, window: ApplicationWindow) -> NotReady | None:
        """Say why this window cannot be decided by; None where it can.

        By default all readings must be there and possible: queries, the rates and backlogs of their sources,
        and what is held.
        """
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        if isinstance(window, SlotWindow):
            held = count_held(window)
            if isinstance(held, NotReady):
                return held
        else:
            shared = find_shared_operator(window)
            if shared is not None:
                return shared
        for query in window.queries:
            missing = find_unread_source(query)
            if missing is None and not isinstance(window, SlotWindow):
                missing = find_unheld_operator(query.graph, window.parallelism)
            if missing is not None:
                return missing
        return None

    @final
    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Answer a window: what is missing, or the decision."""
        if (SLOTS if isinstance(window, SlotWindow) else OPERATORS) not in self.sizes:
            return NotReady(f"{self.name} sizes {' and '.join(sorted(self.sizes))}", "such an application")
        return self.find_missing(window) or self.decide(window)
