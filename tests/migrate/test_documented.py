"""The examples of docs/migration.md run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.decide.policy import MoveState
from penstock.migrate import StateView, Strategy
from penstock.migrate.mover import Planned
from penstock.runtime.state_control import StateControl
from penstock_lab.experiments.faults.state_cluster import a_view

PAGE = Path(__file__).parent.parent.parent / "docs" / "migration.md"
VIEW = a_view({"1": range(4), "2": range(4, 8)})


class Mover:
    """State that lies as in VIEW, and nothing under way."""

    def obstacle(self) -> str | None:
        return None

    def views(self) -> tuple[StateView, ...]:
        return (VIEW,)

    def plan_rebalancing(self, strategy: Strategy | None = None) -> Planned:
        return ()

    def plan_draining(self, executor_ids: Sequence[str], strategy: Strategy | None = None) -> Planned:
        return ()

    def standing(self) -> dict[str, Any] | None:
        return None

    def stop(self, reason: str) -> bool:
        return False


class Orders:
    """Remembers what was ordered."""

    def __init__(self) -> None:
        self.given: list[MoveState] = []

    def order(self, action: MoveState) -> None:
        self.given.append(action)


def test_a_plan_of_ones_own() -> None:
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    orders = Orders()
    names: dict[str, Any] = {"autopilot": SimpleNamespace(state=StateControl(orders, Mover()))}
    exec(first, names)
    exec(second, names)
    [action] = orders.given
    assert action.plans == (names["plan"],)
    assert [(move.batch, move.bin.partition, move.target) for move in names["plan"].moves] == [
        (15, 0, "2"),
        (15, 4, "1"),
    ]
