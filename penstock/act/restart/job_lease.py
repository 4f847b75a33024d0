"""A lease on a job in its journal: supervisors on two machines that share the journal notice each other.

The lock in the runtime directory holds on one machine alone. A lease is renewed by its holder; whoever finds
one watches it, refuses where it moves, and takes over where it stands still.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import ActionFailed, JournalUnavailable
from penstock.journal.former_runs import identify_process, process_is_over
from penstock.journal.leading import Leadership, LeaseKeeper
from penstock.journal.leases import Lease, Leases

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""How long a start waits for a sign of a supervisor on another machine that ended without a word."""
LOOK_SECONDS = 0.1


class JobLease:
    """The lease of one job."""

    def __init__(self, leases: Leases, job: str, patience: float = LEASE_SECONDS) -> None:
        self._leases, self._name, self._patience = leases, f"job {job}", patience

    @contextmanager
    def hold(self, say: Callable[[str], None]) -> Iterator[None]:
        """Hold the lease for the length of a block; ActionFailed where another machine runs the job."""
        keeper = LeaseKeeper(Leadership(self._leases, self._name, describe_holder(), self._patience))
        try:
            trouble = self._reach(keeper, say)
            if trouble:
                say(f"{trouble}: that the same job runs on another machine may not be noticed")
            yield
        finally:
            keeper.stop()

    def _reach(self, keeper: LeaseKeeper, say: Callable[[str], None]) -> str:
        """Reach for the lease; return why that cannot be done."""
        try:
            self._free_dead_holder()
        except JournalUnavailable as error:
            return str(error)
        keeper.start()
        return "" if self._wait(keeper, say) else "the journal does not answer"

    def _free_dead_holder(self) -> None:
        """Give back the lease of a supervisor of this machine that was killed."""
        seen = self._leases.seen(self._name)
        if seen is not None and not seen.free and _is_dead(seen):
            self._leases.release(seen)

    def _wait(self, keeper: LeaseKeeper, say: Callable[[str], None]) -> bool:
        """Wait until this one leads; return False where the journal does not answer."""
        leadership = keeper.leadership
        first, give_up_at = leadership.watched, time.monotonic() + 2 * self._patience
        if leadership.lease is None and first is not None:
            say(f"{_describe(first)} had this job: waiting {self._patience:g} s for a sign of it")
        while leadership.lease is None:
            seen = leadership.watched
            if first is not None and seen is not None and not seen.free and seen != first:
                raise ActionFailed(
                    f"this job already runs on {_describe(seen)}, and two would share a checkpoint: "
                    "end that one first"
                )
            if time.monotonic() > give_up_at:
                return False
            time.sleep(LOOK_SECONDS)
            keeper.refresh()
        return True


def describe_holder() -> str:
    """Return the name under which this process holds a lease."""
    process = identify_process()
    return f"{process['host']}:{process['pid']}:{process['started']}"


def _is_dead(lease: Lease) -> bool:
    host, pid, started = _split(lease)
    return pid.isdecimal() and process_is_over({"host": host, "pid": int(pid), "started": started})


def _describe(lease: Lease) -> str:
    host, pid, _ = _split(lease)
    return f"{host} as process {pid}"


def _split(lease: Lease) -> tuple[str, str, str]:
    rest, _, started = lease.holder.rpartition(":")
    host, _, pid = rest.rpartition(":")
    return host, pid, started
