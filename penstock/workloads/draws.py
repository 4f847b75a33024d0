"""Random numbers that follow from their position: any part of a stream can be drawn anywhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Draws = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15


def draws(position: Draws, seed: int) -> Draws:
    """64 random bits for each position, by a counter-based hash (splitmix64)."""
    mixed = position + np.uint64((seed * _GOLDEN + _GOLDEN) % 2**64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def bits(drawn: Draws, shift: int, width: int) -> Draws:
    """Some of the 64 bits as a number below 2^width."""
    return (drawn >> np.uint64(shift)) & np.uint64(2**width - 1)


def uniform(drawn: Draws, shift: int, width: int) -> NDArray[np.float64]:
    """Some of the 64 bits as a number in [0, 1)."""
    return bits(drawn, shift, width) / np.float64(2**width)


def chosen(drawn: Draws, shift: int, width: int, share: float) -> NDArray[np.bool_]:
    """True for this share of the positions."""
    return bits(drawn, shift, width) < np.uint64(round(share * 2**width))


def below(drawn: Draws, shift: int, bound: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """32 of the bits as a whole number in [0, bound); the bound may differ by position."""
    return (bits(drawn, shift, 32) * np.asarray(bound, dtype=np.uint64) >> np.uint64(32)).astype(np.int64)
