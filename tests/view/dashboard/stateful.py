"""An application with state, on a real control socket: it lies where it is told to, and orders are noted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import BadInput
from tests.view.dashboard.served import FakeApplication
from tests.view.made_up_state import a_plan, state


class StatefulApplication(FakeApplication):
    """Answers what is asked about state; a rebalancing moves three bins at once."""

    def __init__(self, directory: Path, application: str, **changes: Any) -> None:
        self.state = state()
        self.migration: dict[str, Any] | None = None
        super().__init__(directory, application, **changes)

    def move(self, partition: int, to: str) -> None:
        """Let a bin of the first query lie elsewhere from now on."""
        first = self.state["queries"][0]
        bins = [{**one, "worker": to} if one["partition"] == partition else one for one in first["bins"]]
        self.state = {**self.state, "queries": [{**first, "bins": bins}, *self.state["queries"][1:]]}

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if command == "state":
            return {"state": self.state}
        if command == "migration":
            return {"migration": self.migration}
        if command == "stop-migration":
            return {"stopping": self.migration is not None}
        if command in ("rebalance", "drain"):
            return self._carry_out(command, request)
        return super()._answer(command, request)

    def _carry_out(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((command, request))
        if command == "drain" and request["executor"] not in ("1", "2", "3"):
            raise BadInput(f"there is no executor {request['executor']}")
        if not request["dry_run"]:
            for partition in range(3):
                self.move(partition, "3")
            self.migration = {"state": "moving", "moved": 1, "of": 3, "detail": ""}
        return {"plans": [a_plan()], "started": not request["dry_run"]}
