"""The load source: offsets, ranges and records, without Spark running."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.errors import BadInput
from penstock_lab.workloads.records import WORDS_PER_SENTENCE, count_words, list_vocabulary, make_sentences
from penstock_lab.workloads.source import LoadOptions, LoadReader, LoadSource, Sentences, cut_ranges
from penstock_lab.workloads.word_count import WordCount, count_batch, split_batch

LONG_AGO = "1000"


def reader(**options):
    return LoadSource({"profile": "constant:10", **options}).streamReader(None)


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**5), st.integers(1, 50))
def test_ranges_cover_every_record_once_and_evenly(start, count, parts):
    ranges = cut_ranges(start, start + count, parts)
    assert sum(piece.end - piece.first for piece in ranges) == count
    edges = [start, *(piece.end for piece in ranges)]
    assert [piece.first for piece in ranges] == edges[:-1]
    sizes = {piece.end - piece.first for piece in ranges}
    assert len(ranges) == min(parts, count)
    assert not sizes or max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 299), st.integers(0, 99))
def test_a_record_depends_on_its_number_alone(first, count, cut, seed):
    cut = min(cut, count)
    whole = make_sentences(first, count, seed).to_pylist()
    parts = (
        make_sentences(first, cut, seed).to_pylist()
        + make_sentences(first + cut, count - cut, seed).to_pylist()
    )
    assert whole == parts


def test_every_sentence_has_twenty_known_words():
    known = set(list_vocabulary())
    for text in make_sentences(0, 50, seed=3).to_pylist():
        assert len(text.split()) == WORDS_PER_SENTENCE
        assert set(text.split()) <= known


def test_the_reference_counts_what_the_sentences_hold():
    texts = make_sentences(0, 200, seed=7).to_pylist()
    assert count_words(200, seed=7) == Counter(word for text in texts for word in text.split())


def test_flat_map_and_count_agree_with_the_reference():
    batch = Sentences(seed=1).batch(0, 100)
    counted = count_batch(split_batch(batch.select(["sentence"])))
    assert dict(zip(*(column.to_pylist() for column in counted.columns), strict=True)) == count_words(100, 1)


def test_the_start_travels_in_the_offset():
    first = reader().initialOffset()
    restarted = reader(start="5")
    offset = restarted.latestOffset({"records": 3, "start_ms": first["start_ms"]}, ReadAllAvailable())
    assert offset["start_ms"] == first["start_ms"]
    assert offset["records"] >= 3


def test_the_source_falls_silent_after_its_last_record():
    subject = reader(start=LONG_AGO, maxRecords="42")
    start = subject.initialOffset()
    end = subject.latestOffset(start, ReadAllAvailable())
    assert end == {"records": 42, "start_ms": 1_000_000}
    assert subject.latestOffset(end, ReadAllAvailable()) == end
    assert subject.partitions(end, end) == []


def test_a_bounded_batch_leaves_a_backlog_that_is_reported():
    subject = reader(start=LONG_AGO, maxRecords="42", maxRecordsPerBatch="30")
    assert subject.getDefaultReadLimit() == ReadMaxRows(30)
    end = subject.latestOffset(subject.initialOffset(), ReadMaxRows(30))
    assert end["records"] == 30
    assert subject.reportLatestOffset()["records"] == 42


def test_before_the_first_batch_nothing_is_reported():
    assert reader().reportLatestOffset() is None
    assert reader().getDefaultReadLimit() == ReadAllAvailable()


def test_an_offset_never_goes_back_when_the_clock_does():
    subject = reader()
    ahead = {"records": 10**9, "start_ms": 0}
    assert subject.latestOffset(ahead, ReadAllAvailable())["records"] >= 10**9


def test_reading_yields_the_records_of_the_range():
    subject = LoadReader(LoadOptions.parse({"profile": "constant:1", "seed": "5"}))
    (piece,) = cut_ranges(990, 2100, 1)
    batches = list(subject.read(piece))
    numbers = [number for batch in batches for number in batch.column("number").to_pylist()]
    texts = [text for batch in batches for text in batch.column("sentence").to_pylist()]
    assert numbers == list(range(990, 2100))
    assert texts == make_sentences(990, 1110, 5).to_pylist()


@pytest.mark.parametrize(
    "options",
    [
        {"partitions": "0"},
        {"partitions": "many"},
        {"maxRecords": "-1"},
        {"maxRecordsPerBatch": "0"},
        {"start": "yesterday"},
        {"start": "0"},
        {"start": "inf"},
        {"profile": "constant:x"},
        {"seed": "-1"},
    ],
)
def test_bad_options_are_refused(options):
    with pytest.raises(BadInput):
        reader(**options)


def test_the_ratio_of_the_paper_is_kept():
    workload = WordCount.make_for(slots=30, rate=1_000_000 / 60)
    assert 1 / workload.seconds_per_sentence * 60 == pytest.approx(100_000)
    assert 1 / workload.seconds_per_word * 60 == pytest.approx(1_000_000)
    assert workload.count_slots(1_000_000 / 60) == pytest.approx(30)
