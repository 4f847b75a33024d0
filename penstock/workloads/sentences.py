"""Sentences of 20 words that follow from their record number: every run offers the same ones."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.workloads.draws import chosen, draws

WORDS_PER_SENTENCE = 20
VOCABULARY = 1000
"""Distinct words: enough to spread over all partitions, few enough to keep the state small."""

_CONSONANTS = "bdfgklmnpr"
_VOWELS = "aeiou"


@cache
def vocabulary() -> tuple[str, ...]:
    """Pronounceable words, one per number: three syllables, the number in base 10·5 and 10."""
    return tuple(
        _CONSONANTS[number // 100 % 10]
        + _VOWELS[number // 20 % 5]
        + _CONSONANTS[number // 10 % 10]
        + _VOWELS[number % 5]
        + _CONSONANTS[number % 10]
        for number in range(VOCABULARY)
    )


def word_numbers(first: int, count: int, seed: int, skew: float = 0.0) -> NDArray[np.int64]:
    """The words of records first … first+count-1, 20 to a record; this share of them is word 0 (skew)."""
    position = np.arange(first * WORDS_PER_SENTENCE, (first + count) * WORDS_PER_SENTENCE, dtype=np.uint64)
    drawn = draws(position, seed)
    words: NDArray[np.int64] = (drawn % np.uint64(VOCABULARY)).astype(np.int64)
    if skew:
        words[chosen(drawn, 40, 24, skew)] = 0
    return words


def sentences(first: int, count: int, seed: int, skew: float = 0.0) -> pa.Array:
    """Records first … first+count-1 as one Arrow array of text."""
    words = pa.array(vocabulary()).take(pa.array(word_numbers(first, count, seed, skew)))
    offsets = pa.array(np.arange(0, (count + 1) * WORDS_PER_SENTENCE, WORDS_PER_SENTENCE, dtype=np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, words), " ")


def word_counts(records: int, seed: int, first: int = 0, skew: float = 0.0) -> Counter[str]:
    """The reference answer: how often each word occurs in the first so many records."""
    names = vocabulary()
    return Counter(names[number] for number in word_numbers(first, records, seed, skew).tolist())
