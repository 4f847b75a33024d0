"""A loop over fakes with a real journal that can be made to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.decide.manager.restarts import Restarter
from penstock.errors import JournalUnavailable
from penstock.journal.store import Journal
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Ports
from tests.fakes import APPLICATION, AgreeingManager, FakeActuator, FakeSource, FixedPolicy, a_scale

GROW = a_scale(4)


class FlakyRecord:
    """A real journal that fails when told to, for all methods or for one."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.broken: set[str] | None = set()
        """Names of failing methods; None for all."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if self.broken is None or name in self.broken:

            def fail(*_: object, **__: object) -> None:
                raise JournalUnavailable("the journal cannot be written: the disk is full")

            return fail
        method: Callable[..., Any] = getattr(self.journal, name)
        return method


class Setting:
    """A loop over fakes, ten seconds a policy interval."""

    def __init__(
        self,
        record: FlakyRecord,
        *answers: Any,
        manager: Any = None,
        acts: bool = True,
        restarter: Restarter | None = None,
    ) -> None:
        self.actuator = FakeActuator()
        self.source = FakeSource(executors=lambda: self.actuator.size)
        self.policy = FixedPolicy(*answers)
        self.manager = manager or AgreeingManager()
        actuator = self.actuator if acts else None
        ports = Ports(self.source, self.policy, self.manager, record, actuator, restarter=restarter)
        self.loop = Loop(APPLICATION, ports, LoopSettings(policy_interval=10.0))
