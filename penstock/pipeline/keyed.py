"""Keyed stateful functions: the records of one key and what is kept for it, in and out as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.pipeline.serving import Served, conformed, letter, time_limit

State = tuple[Any, ...]
KeyedCall = Callable[[tuple[Any, ...], Any, State | None], tuple[Any, State | None]]
"""(key, pandas DataFrame, state or None) in, (pandas DataFrame, new state or None to forget the key) out."""


@dataclass(frozen=True, slots=True)
class KeyedServer:
    """Calls one keyed function; a record that fails leaves the state as it was."""

    function: str
    call: KeyedCall
    schema: pa.Schema | None
    timeout: float | None = None

    def serve(self, key: tuple[Any, ...], frame: Any, state: State | None) -> tuple[Served, State | None]:
        """All records of a key; where they fail together, one after the other."""
        served = Served()
        state, failed = self._try(key, frame, state, served)
        if failed is not None and len(frame) == 1:
            served.dead.append(letter(_record(frame), failed))
        elif failed is not None:
            for number in range(len(frame)):
                single = frame.iloc[number : number + 1]
                state, problem = self._try(key, single, state, served)
                if problem is not None:
                    served.dead.append(letter(_record(single), problem))
        return served, state

    def _try(
        self, key: tuple[Any, ...], frame: Any, state: State | None, served: Served
    ) -> tuple[State | None, BaseException | None]:
        try:
            with time_limit(self.timeout):
                result, after = self.call(key, frame, state)
        except (Exception, SystemExit) as problem:
            return state, problem
        if self.schema is not None and result is not None:
            served.tables.append(conformed(self.function, result, self.schema))
        return after, None


def _record(frame: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pandas(frame, preserve_index=False)
