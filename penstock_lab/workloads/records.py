"""Loads and their records: what is offered, and what follows from a record's number alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import BadInput
from penstock.simulate.profiles import Profile

HOT_SCALE = 10_000


@dataclass(frozen=True, slots=True)
class Load:
    """The records that a load source offers, and the tasks that read them."""

    profile: str
    _: KW_ONLY
    source_partitions: int = 2
    seed: int = 0
    start: float | None = None
    max_records: int | None = None
    max_records_per_batch: int | None = None

    def list_options(self) -> dict[str, str]:
        """Return the options of the load source."""
        return write_options(
            {
                "profile": self.profile,
                "partitions": self.source_partitions,
                "seed": self.seed,
                "start": self.start,
                "maxRecords": self.max_records,
                "maxRecordsPerBatch": self.max_records_per_batch,
            }
        )

    def pick_load(self) -> dict[str, Any]:
        """Return the settings of the load alone, to make another workload with it."""
        return {field.name: getattr(self, field.name) for field in fields(Load)}


def write_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that are given, as Spark takes them."""
    return {key: str(value) for key, value in options.items() if value is not None}


def is_hot(number: Any, share: float) -> Any:
    """Return whether a record is among this share of all; the number is an int or a column of Spark."""
    return number * 7919 % HOT_SCALE < round(share * HOT_SCALE)


Draws = NDArray[np.uint64]
_GOLDEN = 0x9E3779B97F4A7C15


def draw_bits(position: Draws, seed: int) -> Draws:
    """Draw 64 random bits for each position, by a counter-based hash (splitmix64)."""
    mixed = position + np.uint64((seed * _GOLDEN + _GOLDEN) % 2**64)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def take_bits(drawn: Draws, shift: int, width: int) -> Draws:
    """Return some of the 64 bits as a number below 2^width."""
    return (drawn >> np.uint64(shift)) & np.uint64(2**width - 1)


def draw_uniform(drawn: Draws, shift: int, width: int) -> NDArray[np.float64]:
    """Return some of the 64 bits as a number in [0, 1)."""
    return take_bits(drawn, shift, width) / np.float64(2**width)


def choose_share(drawn: Draws, shift: int, width: int, share: float) -> NDArray[np.bool_]:
    """Return true for this share of the positions."""
    return take_bits(drawn, shift, width) < np.uint64(round(share * 2**width))


def draw_below(drawn: Draws, shift: int, bound: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Return 32 of the bits as a whole number in [0, bound); the bound may differ by position."""
    return (take_bits(drawn, shift, 32) * np.asarray(bound, dtype=np.uint64) >> np.uint64(32)).astype(
        np.int64
    )


WORDS_PER_SENTENCE = 20
VOCABULARY = 1000
"""Distinct words: enough to spread over all partitions, few enough to keep the state small."""
_CONSONANTS = "bdfgklmnpr"
_VOWELS = "aeiou"


@cache
def list_vocabulary() -> tuple[str, ...]:
    """Return pronounceable words, one per number: three syllables, the number in base 10·5 and 10."""
    return tuple(
        _CONSONANTS[number // 100 % 10]
        + _VOWELS[number // 20 % 5]
        + _CONSONANTS[number // 10 % 10]
        + _VOWELS[number % 5]
        + _CONSONANTS[number % 10]
        for number in range(VOCABULARY)
    )


def draw_words(first: int, count: int, seed: int, skew: float = 0.0) -> NDArray[np.int64]:
    """Draw the words of records first … first+count-1; this share of them is word 0 (skew)."""
    position = np.arange(first * WORDS_PER_SENTENCE, (first + count) * WORDS_PER_SENTENCE, dtype=np.uint64)
    drawn = draw_bits(position, seed)
    words: NDArray[np.int64] = (drawn % np.uint64(VOCABULARY)).astype(np.int64)
    if skew:
        words[choose_share(drawn, 40, 24, skew)] = 0
    return words


def make_sentences(first: int, count: int, seed: int, skew: float = 0.0) -> pa.Array:
    """Return records first … first+count-1 as one Arrow array of text."""
    words = pa.array(list_vocabulary()).take(pa.array(draw_words(first, count, seed, skew)))
    offsets = pa.array(np.arange(0, (count + 1) * WORDS_PER_SENTENCE, WORDS_PER_SENTENCE, dtype=np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, words), " ")


def count_words(records: int, seed: int, first: int = 0, skew: float = 0.0) -> Counter[str]:
    """Return the right answer: how often each word occurs in the first so many records."""
    names = list_vocabulary()
    return Counter(names[number] for number in draw_words(first, records, seed, skew).tolist())


KNOT_EVERY = 1000
"""Arrivals are found exactly at every thousandth record, and between these where the rate changes."""
LOOKED_AT = tuple(number * 0.6180339887498949 % 1 for number in range(1, 17))
"""Places to check between two knots, as shares; by the golden ratio, so that no period hits all of them."""
MOST_BESIDE = 0.5
"""Records by which the profile may differ from the line between two knots."""
NEVER_SECONDS = 1e10
"""A record that is not offered by then never is."""
Knot = tuple[int, float]
"""A record and its arrival."""


def find_arrival(profile: Profile, record: float) -> float:
    """Return seconds after the profile's start at which the record was offered."""
    low, high = 0.0, 1.0
    while profile.cumulative(high) < record:
        low, high = high, 2 * high
        if high > NEVER_SECONDS:
            raise BadInput(f"the rate profile never offers record {record:g}")
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if profile.cumulative(middle) < record else (low, middle)
    return high


def find_arrivals(profile: Profile, first: int, count: int) -> NDArray[np.float64]:
    """Return the arrivals of records first … first+count-1; they do not depend on the range."""
    places = range(first // KNOT_EVERY, (first + count) // KNOT_EVERY + 2)
    most = profile.cumulative(NEVER_SECONDS)
    whole = [KNOT_EVERY * place for place in places if KNOT_EVERY * place <= most]
    knots = _place_knots(profile, whole)
    if len(whole) < len(places):
        # the load ends before the next knot: what comes after the last one is found record by record
        rest = range(max(first, whole[-1] + 1), first + count)
        knots += [(record, find_arrival(profile, record)) for record in rest]
    records, times = [record for record, _ in knots], [at for _, at in knots]
    return np.interp(np.arange(first, first + count), records, times)


def _place_knots(profile: Profile, records: Sequence[int]) -> list[Knot]:
    """Return these records with their arrivals, and as many between as it takes to join all by lines."""
    ends = [(record, find_arrival(profile, record)) for record in records]
    found = ends[:1]
    for low, high in pairwise(ends):
        found += [*_fill_gap(profile, low, high), high]
    return found


def _fill_gap(profile: Profile, low: Knot, high: Knot) -> list[Knot]:
    if high[0] - low[0] < 2 or _is_straight(profile, low, high):
        return []
    record = (low[0] + high[0]) // 2
    middle = (record, find_arrival(profile, record))
    return [*_fill_gap(profile, low, middle), middle, *_fill_gap(profile, middle, high)]


def _is_straight(profile: Profile, low: Knot, high: Knot) -> bool:
    """Return whether records come evenly from one knot to the other."""
    count, seconds = high[0] - low[0], high[1] - low[1]
    beside = (profile.cumulative(low[1] + share * seconds) - low[0] - share * count for share in LOOKED_AT)
    return all(abs(records) <= MOST_BESIDE for records in beside)
