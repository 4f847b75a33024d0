"""Memory for columns: one block for the columns of a stage, and blocks that are used again.

The kernel clears a page at its first touch. A virtual machine may have given its free pages back to its host,
and then waits for the host as well: to come by memory can take longer than to compute the columns.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

_Block = npt.NDArray[np.uint8]
_ALIGNMENT = 64
LARGE_BLOCK = 1 << 22
"""Bytes from which numpy asks for huge pages; the C library keeps smaller blocks itself."""
_ROOM = 8
"""A block gets an eighth more than is asked for: what is never touched costs nothing."""


class _FreeBlocks:
    """Blocks whose columns are gone, kept for other columns.

    There are never more blocks than were in use at one time: for each new one, a kept one is let go.
    """

    def __init__(self) -> None:
        self._kept: list[_Block] = []
        self._is_open = True

    def take(self, size: int) -> _Block:
        """Return a block for this many bytes, which comes back when the last view of it is gone."""
        fitting = [place for place, block in enumerate(self._kept) if size <= len(block) <= 2 * size]
        if fitting:
            memory = self._kept.pop(min(fitting, key=lambda place: len(self._kept[place])))
        else:
            if self._kept:
                self._kept.pop(int(np.argmax([len(block) for block in self._kept])))
            memory = np.empty(size + size // _ROOM, dtype=np.uint8)
        # views refer to this array, and not to the one that owns the memory, because a buffer is between them
        block = np.frombuffer(memory.data, dtype=np.uint8)
        weakref.finalize(block, self._give_back, memory).atexit = False
        return block

    def _give_back(self, memory: _Block) -> None:
        if self._is_open:
            self._kept.append(memory)

    def close(self) -> None:
        """Let all blocks go, and keep none from now on."""
        self._is_open = False
        self._kept.clear()


_FREE: ContextVar[_FreeBlocks | None] = ContextVar("_FREE", default=None)


@contextmanager
def reuse_blocks() -> Iterator[None]:
    """Keep the blocks of columns that are gone for others that are made inside; at the end let them go."""
    if _FREE.get() is not None:
        yield
        return
    free = _FreeBlocks()
    token = _FREE.set(free)
    try:
        yield
    finally:
        _FREE.reset(token)
        free.close()


def allocate_columns(size: int, *types: npt.DTypeLike) -> list[npt.NDArray[Any]]:
    """Return columns of these types in one block: huge pages, which numpy asks for, need a large one.

    Small pages take longer to come by than the columns to fill, and so do arrays made in compiled code.
    """
    lengths = [-(-size * np.dtype(kind).itemsize // _ALIGNMENT) * _ALIGNMENT for kind in types]
    ends = np.cumsum(lengths)
    block = _allocate_block(int(ends[-1]))
    return [
        block[end - length : end].view(kind)[:size]
        for end, length, kind in zip(ends, lengths, types, strict=True)
    ]


def _allocate_block(size: int) -> _Block:
    free = _FREE.get()
    return np.empty(size, dtype=np.uint8) if free is None or size < LARGE_BLOCK else free.take(size)
