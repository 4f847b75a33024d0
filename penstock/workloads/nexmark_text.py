"""Words of the Nexmark events: small pools that whole columns are taken from."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CALIFORNIA = ("Los Angeles", "San Francisco")
CITIES = pa.array(["Phoenix", *_CALIFORNIA, "Boise", "Portland", "Bend", "Redmond", "Seattle", "Cheyenne"])
CHANNELS = pa.array(["web", "phone", "app", "hall"])

_FIRST_NAMES = ("Ada", "Blaise", "Carl", "Emmy", "Grace", "Henri", "Ida", "Kurt", "Lise", "Niels", "Sofia")
_LAST_NAMES = ("Ampere", "Bohr", "Curie", "Dirac", "Euler", "Gauss", "Hertz", "Noether", "Turing")
_ADJECTIVES = ("old", "new", "rare", "signed", "broken", "gilded", "plain", "heavy")
_NOUNS = ("clock", "chair", "map", "radio", "vase", "bicycle", "camera", "violin", "stamp", "lamp")


@cache
def names() -> pa.Array:
    """First and last names."""
    return pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])


@cache
def titles() -> pa.Array:
    """What is up for auction."""
    return pa.array([f"{adjective} {noun}" for adjective in _ADJECTIVES for noun in _NOUNS])


@cache
def paddings(mean_length: int) -> pa.Array:
    """64 texts of half to one and a half times this length, which bring events to their published size."""
    letters = np.random.default_rng(mean_length).integers(97, 123, size=(64, 2 * mean_length), dtype=np.uint8)
    lengths = np.linspace(mean_length / 2, mean_length * 1.5, 64).astype(int)
    return pa.array([row[:length].tobytes().decode() for row, length in zip(letters, lengths, strict=True)])


def emails(ids: NDArray[np.int64]) -> pa.Array:
    """One address a person."""
    return pc.binary_join_element_wise("person", pa.array(ids).cast(pa.string()), "@example.org", "")
