"""The columnar form of a trace."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.diagnose.trace.events import COLUMNS, EVENT_COLUMNS, from_table, number_keys, to_table
from penstock.errors import BadInput
from tests.diagnose.traces import activity, message, ordered, trace_of


def example():
    return trace_of(
        ordered(activity("p", 0, 5, operator="map"), message("p", 5, "q", 7, 3), activity("q", 7, 9))
    )


def test_a_trace_survives_parquet(tmp_path):
    path = tmp_path / "trace.parquet"
    pq.write_table(to_table(example()), path)
    again = from_table(pq.read_table(path))
    names = [again.workers[i] for i in again.worker]
    assert names == [example().workers[i] for i in example().worker]
    assert [again.works[i] for i in again.work] == [example().works[i] for i in example().work]
    for column in ("time_us", "kind", "activity", "correlation"):
        np.testing.assert_array_equal(getattr(again, column), getattr(example(), column))
    assert [again.workers[i] if i >= 0 else None for i in again.remote] == [None, None, "q", "p", None, None]


def test_plain_strings_and_missing_optional_columns_are_read():
    table = pa.table(
        {"time_us": [5, 1], "worker": ["b", "a"], "kind": ["end", "start"], "activity": ["io", "barrier"]}
    )
    trace = from_table(table)
    assert trace.time_us.tolist() == [1, 5]
    assert [trace.workers[i] for i in trace.worker] == ["a", "b"]
    assert trace.remote.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("change", "word"),
    [({"kind": ["begin", "end"]}, "begin"), ({"activity": ["thinking", "io"]}, "thinking"),
     ({"time_us": [1.5, 2.0]}, "time_us"), ({"time_us": None}, "time_us"),
     ({"worker": ["a", None]}, "worker has a null"), ({"worker": pa.nulls(2)}, "worker has a null")],
)  # fmt: skip
def test_bad_columns_are_named(change, word):
    columns = {
        "time_us": [5, 1],
        "worker": ["b", "a"],
        "kind": ["end", "start"],
        "activity": ["io", "barrier"],
    }
    columns = {name: values for name, values in (columns | change).items() if values is not None}
    with pytest.raises(BadInput, match=word):
        from_table(pa.table(columns))


def test_an_empty_trace_is_a_trace():
    empty = from_table(COLUMNS.empty_table())
    assert len(empty) == 0
    assert all(len(getattr(empty, name)) == 0 for name in EVENT_COLUMNS)


@given(st.lists(st.integers(0, 30), max_size=20), st.sampled_from([31, 1 << 20]))
def test_keys_are_numbered_as_a_sort_would_number_them(keys, size):
    keys = np.array(keys, dtype=np.int64)
    distinct, codes = number_keys(keys, size)
    expected = np.unique(keys, return_inverse=True)
    np.testing.assert_array_equal(distinct, expected[0])
    np.testing.assert_array_equal(codes, expected[1])
