"""What is known of an application before a batch of it has ended: its executors."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow


@dataclass(frozen=True, slots=True)
class NoBatchYet(NotReady):
    """No query has shown what it does; `window` has the executors alone, which can be short of memory."""

    window: ApplicationWindow = field(kw_only=True)
