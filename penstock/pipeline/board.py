"""The parallelism of every function: set by the controller or by hand, read anew by each batch."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.errors import BadInput, NotFound
from penstock.pipeline.limits import Limits


class Board:
    """Read and written by any thread; a batch says when it begins and ends, and with what.

    A function with state has another size only when its state has moved, which `settle` says.
    """

    def __init__(self, limits: Limits, start: Mapping[str, int], fixed: frozenset[str] = frozenset()) -> None:
        self.limits, self._fixed = dict(limits), fixed
        self._lock = threading.Lock()
        self._wanted = {name: min(max(start.get(name, least), least), most)
                        for name, (least, most) in limits.items()}  # fmt: skip
        self._pinned: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._settled: dict[str, int] = {}

    def wanted(self) -> dict[str, int]:
        """Function → the parallelism that it is to have."""
        with self._lock:
            return dict(self._wanted)

    def sizes(self) -> dict[str, int]:
        """Function → the parallelism of its next batch."""
        with self._lock:
            return {**self._wanted, **self._settled}

    def settle(self, function: str, size: int) -> None:
        """The state of a function lies as this size needs it."""
        least, most = self.limits[function]
        with self._lock:
            self._settled[function] = min(max(size, least), most)

    def pinned(self) -> dict[str, int]:
        """Functions whose parallelism was set by hand."""
        with self._lock:
            return dict(self._pinned)

    def change(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Set what is not pinned, within limits; what is wanted afterwards."""
        with self._lock:
            for name, size in sizes.items():
                if name in self._wanted and name not in self._pinned and name not in self._fixed:
                    least, most = self.limits[name]
                    self._wanted[name] = min(max(size, least), most)
            return dict(self._wanted)

    def pin(self, function: str, size: int | None) -> int:
        """Set a function by hand, and keep it there; None gives it back to the policy."""
        if function not in self._wanted:
            raise NotFound(f"no function {function!r}; there are {', '.join(self._wanted)}")
        least, most = self.limits[function]
        with self._lock:
            if size is None:
                self._pinned.pop(function, None)
                return self._wanted[function]
            if function in self._fixed and size != self._wanted[function]:
                raise BadInput(f"{function!r} is not scaled: it has {self._wanted[function]}, and keeps that")
            if isinstance(size, bool) or not isinstance(size, int) or not least <= size <= most:
                raise BadInput(f"{function!r} may have {least} to {most} instances, not {size}")
            self._pinned[function] = self._wanted[function] = size
            return size

    def unsettled(self) -> frozenset[str]:
        """Functions whose state does not lie as they are wanted: only another move changes that."""
        with self._lock:
            return frozenset(name for name, size in self._settled.items() if size != self._wanted[name])

    def restore(self, pinned: Mapping[str, int]) -> None:
        """Take up what was set by hand in the run before, as far as it is still allowed."""
        for function, size in pinned.items():
            least, most = self.limits.get(function, (1, 0))
            if least <= size <= most and function not in self._fixed:
                self.pin(function, size)

    def begin_batch(self, function: str) -> int:
        """The parallelism that this batch is to run with."""
        with self._lock:
            self._running[function] = self._settled.get(function, self._wanted[function])
            return self._running[function]

    def end_batch(self, function: str) -> None:
        """The batch is over."""
        with self._lock:
            self._running.pop(function, None)

    def in_effect(self) -> dict[str, int]:
        """Function → what it works with now; between batches that is what the next one will have."""
        with self._lock:
            return {**self._wanted, **self._settled, **self._running}
