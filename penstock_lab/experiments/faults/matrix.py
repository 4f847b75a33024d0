"""The fault matrix: every fault meets every part, by a trial or by the reason why they cannot meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PARTS = ("loop", "migration", "fleet", "pipeline", "restart")

EXECUTOR_FAULTS = ("executor killed", "executor frozen", "executor slow", "executor out of memory")
EXECUTOR_KILLED, EXECUTOR_FROZEN, EXECUTOR_SLOW, EXECUTOR_WITHOUT_MEMORY = EXECUTOR_FAULTS
DRIVER_KILLED, DRIVER_FROZEN = DRIVER_FAULTS = ("driver killed", "driver frozen")
HOST_FAULTS = ("network of a host cut", "network of a host slow")
CHECKPOINT_SLOW, CHECKPOINT_FULL = CHECKPOINT_FAULTS = ("checkpoint slow", "checkpoint full")
SPARK_FAULTS = (*EXECUTOR_FAULTS, *DRIVER_FAULTS, *HOST_FAULTS, *CHECKPOINT_FAULTS)
"""Faults of Spark itself, tried on the proving ground."""

FILE_FAULTS = ("journal away", "journal locked", "journal full", "journal read-only", "journal deleted")
SERVER_FAULTS = ("PostgreSQL away", "PostgreSQL failed over")
CLOCK_FAULTS = ("clock an hour ahead", "clock an hour back", "clock drifting")
INPUT_FAULTS = ("input torn", "input doubled", "input late", "input reordered", "input hostile")
BROKER_AWAY, BROKER_EMPTY = BROKER_FAULTS = ("broker away", "broker restarted empty")
HUNG, SUPERVISOR_KILLED = "controller hung", "supervisor killed"
TWO_CONTROLLERS, TWO_DRIVERS = "two controllers", "two drivers of one name"

FAULTS = (
    *SPARK_FAULTS,
    HUNG,
    SUPERVISOR_KILLED,
    *FILE_FAULTS,
    *SERVER_FAULTS,
    *BROKER_FAULTS,
    *CLOCK_FAULTS,
    *INPUT_FAULTS,
    TWO_CONTROLLERS,
    TWO_DRIVERS,
)

_NO_SUPERVISOR = (
    "a supervisor starts and ends drivers and does nothing else: the driver inherits the lock, has the "
    "journal, and works on without it, as the cell of restarts shows"
)
_ONE_AUTOPILOT = (
    "the autopilot is a thread of the driver, attaching again returns the one that runs, and no other "
    "process can reach the driver's executors"
)
_NO_BROKER = (
    "nothing of it meets a broker: the supervisor knows processes and a journal, and the job's own broker is "
    "that of the loop's cell"
)
_INHERITED = (
    "driver and supervisor speak over a pair of sockets on one machine, which loses, repeats and reorders "
    "nothing; what the driver says twice or wrongly itself are the cells of doubled and hostile input"
)

REASONS: dict[tuple[str, str], str] = {
    **{(SUPERVISOR_KILLED, part): _NO_SUPERVISOR for part in ("loop", "migration", "fleet", "pipeline")},
    (TWO_CONTROLLERS, "loop"): _ONE_AUTOPILOT,
    (TWO_CONTROLLERS, "migration"): _ONE_AUTOPILOT,
    **{(fault, "restart"): _NO_BROKER for fault in BROKER_FAULTS},
    ("input late", "restart"): _INHERITED,
    ("input reordered", "restart"): _INHERITED,
}
"""Cells that cannot occur, with the reason."""


@dataclass(frozen=True, slots=True)
class FaultCell:
    """A fault that meets a part; with a reason it cannot occur."""

    fault: str
    part: str
    cannot_occur: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The fault and the part."""
        return self.fault, self.part


def list_cells() -> Iterator[FaultCell]:
    """Yield all cells, fault by fault."""
    for fault in FAULTS:
        for part in PARTS:
            yield FaultCell(fault, part, REASONS.get((fault, part), ""))
