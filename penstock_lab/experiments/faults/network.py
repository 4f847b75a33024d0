"""A network of one's own, in which single addresses can be cut off: nothing outside notices.

Hosts of the proving ground are loopback addresses. In a network namespace of its own the rule that finds them
can be preceded by one that finds nothing. It takes the right to make namespaces.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from penstock.errors import ActionFailed
from penstock_lab.experiments.faults.disks import run_command

_NEW_NETWORK = 0x40000000
_OWN = Path("/proc/thread-self/ns/net")
CUT_SECONDS, OPEN_SECONDS = 0.4, 0.2
"""A slow network is one that loses everything for most of the time: TCP sends it again, later and later."""


class OwnNetwork:
    """A network namespace for this thread and all that it starts, for the length of a `with`."""

    def __enter__(self) -> OwnNetwork:
        self._before = os.open(_OWN, os.O_RDONLY)
        _call("unshare", _NEW_NETWORK)
        run_command("ip", "link", "set", "lo", "up")
        # the rule that finds local addresses comes first otherwise, and nothing can precede it
        run_command("ip", "rule", "add", "pref", "100", "lookup", "local")
        run_command("ip", "rule", "del", "pref", "0")
        return self

    def __exit__(self, *error: object) -> None:
        _call("setns", self._before, _NEW_NETWORK)
        os.close(self._before)

    def cut(self, address: str) -> None:
        """Lose all that goes to an address or comes from it."""
        for preference, side in (("10", "to"), ("11", "from")):
            run_command("ip", "rule", "add", "pref", preference, side, f"{address}/32", "blackhole")

    def join(self, address: str) -> None:
        """Let it through again."""
        for preference, side in (("10", "to"), ("11", "from")):
            run_command("ip", "rule", "del", "pref", preference, side, f"{address}/32", "blackhole")

    def disturb(self, address: str, seconds: float) -> None:
        """Cut an address off again and again for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.cut(address)
            time.sleep(CUT_SECONDS)
            self.join(address)
            time.sleep(OPEN_SECONDS)


def _call(function: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments):
        raise ActionFailed(f"{function}: {os.strerror(ctypes.get_errno())}")
