"""Work of Python workers in the sizing experiment: they hold memory while they live, or burn a core and more.

They have a module of their own because a worker imports it once. What a script's functions refer to is made
anew for every task.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterable, Iterator

import pandas as pd

HELD_BYTES = 300 * 1024 * 1024
BURN_SECONDS = 20.0
"""Longer than the window of the rules that grow, since a task needs no core between two batches."""
SECOND_SHARE = 0.3
"""A task burns one core, and this share of another."""
_held: list[bytearray] = []


def hold(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Pass the records on, with much memory at hand."""
    if not _held:
        _held.append(bytearray(b"x") * HELD_BYTES)
    yield from frames


def burn(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Pass the records on after two threads have worked outside of Python's lock: a task wants 1.3 cores."""
    threads = [threading.Thread(target=_compress, args=(share,)) for share in (1.0, SECOND_SHARE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from frames


def _compress(share: float) -> None:
    """Work for this share of the time, in pieces that are short against any sample."""
    data, until = bytes(range(256)) * 2048, time.monotonic() + BURN_SECONDS
    while time.monotonic() < until:
        begun = time.thread_time()
        zlib.compress(data, 9)
        time.sleep((time.thread_time() - begun) * (1.0 / share - 1.0))
