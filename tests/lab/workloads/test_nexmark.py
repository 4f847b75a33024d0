"""The Nexmark generator: proportions, determinism, hot keys, disorder, and how events are written down."""

from collections import Counter
from dataclasses import fields

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock_lab.workloads.nexmark.events import COLUMNS, FIRST_ID, Nexmark
from penstock_lab.workloads.nexmark.streams import (
    NexmarkSource,
    produce,
    write_files,
    write_json,
    write_source_options,
)

STREAM = Nexmark(seed=7, events_per_second=1000)
MESSY = Nexmark(seed=7, events_per_second=1000, out_of_order_share=0.2, late_share=0.05, late_seconds=30)


def micros(batch):
    return batch.column("date_time").cast(pa.int64()).to_numpy()


def in_order(stream, kind, events):
    return micros(Nexmark(stream.seed, stream.events_per_second).batch(kind, 0, events))


@given(st.integers(0, 10**12), st.integers(1, 400), st.data())
def test_a_range_is_the_same_however_it_is_cut(first, count, data):
    cut = data.draw(st.integers(0, count))
    for kind in COLUMNS:
        whole = MESSY.batch(kind, first, count)
        parts = [MESSY.batch(kind, first, cut), MESSY.batch(kind, first + cut, count - cut)]
        assert pa.Table.from_batches(parts) == pa.Table.from_batches([whole])


def test_events_have_the_published_proportions():
    rows = {kind: len(STREAM.batch(kind, 0, 50_000)) for kind in COLUMNS}
    assert rows == {"persons": 1000, "auctions": 3000, "bids": 46_000}


def test_another_seed_gives_other_events_and_the_same_gives_the_same():
    assert STREAM.batch("bids", 0, 100) == Nexmark(seed=7, events_per_second=1000).batch("bids", 0, 100)
    assert STREAM.batch("bids", 0, 100) != Nexmark(seed=8, events_per_second=1000).batch("bids", 0, 100)


def test_a_choice_of_columns_gives_the_same_values():
    whole = MESSY.batch("auctions", 500, 1000)
    for name in COLUMNS["auctions"]:
        assert MESSY.batch("auctions", 500, 1000, [name]).column(0) == whole.column(name)


def test_ids_count_up_and_references_lead_to_what_there_is():
    persons, auctions, bids = (STREAM.batch(kind, 0, 100_000) for kind in COLUMNS)
    assert persons.column("id").to_pylist() == list(range(FIRST_ID, FIRST_ID + 2000))
    assert auctions.column("id").to_pylist() == list(range(FIRST_ID, FIRST_ID + 6000))
    # an auction's own round is known: its seller registered, its bids come after it
    rounds = np.arange(100_000) // 50
    kinds = np.arange(100_000) % 50
    assert (auctions.column("seller").to_numpy() <= rounds[(kinds > 0) & (kinds < 4)] + FIRST_ID).all()
    assert (bids.column("auction").to_numpy() <= rounds[kinds > 3] * 3 + 2 + FIRST_ID).all()
    assert (bids.column("auction").to_numpy() > rounds[kinds > 3] * 3 + 2 - 100 - 100 + FIRST_ID).all()


def test_half_the_bids_go_to_hot_auctions_and_three_quarters_come_from_hot_persons():
    bids = STREAM.batch("bids", 1_000_000, 500_000)
    hot_auctions = np.mean(bids.column("auction").to_numpy() % 100 == 0)
    hot_bidders = np.mean(bids.column("bidder").to_numpy() % 100 == 1)
    assert hot_auctions == pytest.approx(0.5 + 0.5 / 100, abs=0.01)
    assert hot_bidders == pytest.approx(0.75 + 0.25 / 100, abs=0.01)


def test_prices_and_categories_are_spread():
    bids = STREAM.batch("bids", 0, 100_000).column("price").to_numpy()
    assert bids.min() >= 100
    assert bids.max() <= 100_000_000
    assert np.median(np.log10(bids / 100)) == pytest.approx(3, abs=0.05)
    categories = Counter(STREAM.batch("auctions", 0, 100_000).column("category").to_pylist())
    assert set(categories) == {10, 11, 12, 13, 14}
    assert max(categories.values()) < 1.2 * min(categories.values())


def test_event_time_runs_at_its_own_pace():
    times = micros(STREAM.batch("bids", 0, 10_000))
    assert (np.diff(times) > 0).all()
    assert times[-1] - times[0] == pytest.approx(10_000_000, rel=0.01)


def test_the_asked_for_share_is_out_of_order_and_late():
    delays = (in_order(MESSY, "bids", 100_000) - micros(MESSY.batch("bids", 0, 100_000))) / 1e6
    assert delays.min() >= 0
    assert np.mean((delays > 0) & (delays <= 2)) == pytest.approx(0.2, abs=0.01)
    assert np.mean(delays > 2) == pytest.approx(0.05, abs=0.005)
    assert delays.max() <= 30


def test_an_auction_ends_after_it_began():
    auctions = STREAM.batch("auctions", 0, 100_000)
    lasts = auctions.column("expires").cast(pa.int64()).to_numpy() - micros(auctions)
    assert lasts.min() >= 0
    assert lasts.max() <= STREAM.longest_auction_seconds * 1e6


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_files_hold_the_events(tmp_path, form):
    write_files(MESSY, tmp_path, events=5000, files=3, form=form)
    for kind in COLUMNS:
        paths = sorted((tmp_path / kind).iterdir())
        assert len(paths) == 3
        tables = [
            pq.read_table(path) if form == "parquet" else pyarrow.json.read_json(path) for path in paths
        ]
        read = pa.concat_tables(tables)
        ids = "auction" if kind == "bids" else "id"
        assert read.column(ids).to_pylist() == MESSY.batch(kind, 0, 5000).column(ids).to_pylist()
        stamps = [path.stat().st_mtime for path in paths]
        assert stamps == sorted(set(stamps))


def test_events_as_json_come_in_their_order():
    rows = [orjson.loads(line) for line in write_json(STREAM, 25, 100)]
    kinds = Counter(row["kind"] for row in rows)
    assert kinds == {"persons": 2, "auctions": 6, "bids": 92}
    assert [row["date_time"] for row in rows] == sorted(row["date_time"] for row in rows)
    assert rows[25]["kind"] == "persons"


def test_the_source_gives_the_streams_events():
    source = NexmarkSource(write_source_options(MESSY, "auctions", ("id", "seller", "date_time")))
    assert source.schema() == "id bigint, seller bigint, date_time timestamp"
    reader = source.streamReader(None)
    (piece,) = reader.partitions({"records": 100, "start_ms": 1}, {"records": 130, "start_ms": 1})[:1]
    (batch,) = reader.read(piece)
    assert batch == MESSY.batch(
        "auctions", piece.first, piece.end - piece.first, ["id", "seller", "date_time"]
    )


def test_a_source_carries_every_setting_of_its_stream():
    given = Nexmark(
        seed=9,
        events_per_second=123.4,
        first_time=1.7e9,
        out_of_order_share=0.1,
        out_of_order_seconds=3.0,
        late_share=0.02,
        late_seconds=70.0,
        hot_auctions=0.9,
        hot_persons=0.1,
        auctions_in_flight=20,
        active_persons=300,
    )
    usual = Nexmark()
    assert all(getattr(given, field.name) != getattr(usual, field.name) for field in fields(Nexmark))
    assert NexmarkSource(write_source_options(given, "bids")).make_content().stream == given


@pytest.mark.parametrize(
    "options",
    [
        {"activePersons": "2.5"},
        {"kind": "sales"},
        {"columns": "id,colour"},
        {"eventsPerSecond": "fast"},
        {"lateShare": "2"},
    ],
)
def test_bad_options_are_refused(options):
    with pytest.raises(BadInput):
        NexmarkSource(options).schema()


def test_bad_settings_are_refused(tmp_path):
    for bad in ({"events_per_second": 0}, {"late_seconds": 1}, {"active_persons": 0}, {"seed": -1}):
        with pytest.raises(BadInput):
            Nexmark(**bad)
    with pytest.raises(BadInput, match="xml"):
        write_files(STREAM, tmp_path, 10, form="xml")
    with pytest.raises(BadInput, match="not 0"):
        write_files(STREAM, tmp_path, 10, files=0)


def test_a_broker_that_is_not_there_is_an_error():
    with pytest.raises(BadInput, match="3 records did not reach the topic nexmark"):
        produce(STREAM, "127.0.0.1:1", "nexmark", 3, timeout_seconds=0.5)
