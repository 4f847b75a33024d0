"""Decodes LZF blocks, which no package at hand reads; compiled, because it goes byte by byte."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


@numba.njit(cache=True)
def _decode(packed: Bytes, out: Bytes) -> int:
    """Fills `out` and gives the bytes written; -1 where a step leads out of either array."""
    i, o = 0, 0
    while i < len(packed):
        control = int(packed[i])
        i += 1
        if control < 32:
            if i + control + 1 > len(packed) or o + control + 1 > len(out):
                return -1
            for _ in range(control + 1):
                out[o] = packed[i]
                i, o = i + 1, o + 1
            continue
        length = control >> 5
        if i + (length == 7) >= len(packed):
            return -1
        if length == 7:
            length += int(packed[i])
            i += 1
        source = o - ((control & 31) << 8) - int(packed[i]) - 1
        i += 1
        if source < 0 or o + length + 2 > len(out):
            return -1
        for step in range(length + 2):
            out[o + step] = out[source + step]
        o += length + 2
    return o


def decoded(block: bytes, size: int) -> bytes | None:
    """The `size` bytes that the block stands for; nothing if it is broken."""
    out = np.empty(size, dtype=np.uint8)
    if _decode(np.frombuffer(block, dtype=np.uint8), out) != size:
        return None
    return out.tobytes()
