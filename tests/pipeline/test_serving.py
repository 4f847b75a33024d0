"""How functions are called: results, dead letters around records that fail, timeouts, wrong schemas."""

from __future__ import annotations

import json
import threading

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.serving import (
    DEAD,
    ERROR,
    OUTCOME,
    RECORD,
    SERVED,
    KeyedServer,
    Server,
    WrongSchema,
    mark_outcomes,
)
from penstock.pipeline.timestamps import ENTERED

SCHEMA = pa.schema([("number", pa.int64()), ("half", pa.float64())])


def batch(numbers):
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=["number"])


def halve(frame):
    if (frame["number"] < 0).any():
        raise ValueError("a negative number")
    return frame.assign(half=frame["number"] / 2)


def server(call=halve, **options):
    return Server("halve", call, **{"arrow": False, "schema": SCHEMA, **options})


@given(st.lists(st.integers(-5, 20), max_size=40))
def test_every_record_is_served_once_or_becomes_a_dead_letter_with_its_exception(numbers):
    served = server().serve(batch(numbers))
    results = [number for table in served.tables for number in table.column("number").to_pylist()]
    assert results == [number for number in numbers if number >= 0]
    dead = [json.loads(one.record)["number"] for one in served.dead]
    assert dead == [number for number in numbers if number < 0]
    assert {one.error for one in served.dead} <= {"ValueError: a negative number"}


def test_results_and_dead_letters_come_in_one_shape():
    (good, bad) = mark_outcomes(server().serve(batch([4, -1])), SCHEMA, entered=5.0)
    assert good.schema == bad.schema
    texts = {OUTCOME: SERVED, RECORD: None, ERROR: None}
    assert good.to_pylist() == [{"number": 4, "half": 2.0, **texts, ENTERED: 5.0}]
    assert bad.to_pylist()[0][OUTCOME] == DEAD.format("halve")
    assert bad.to_pylist()[0][RECORD] == '{"number": -1}'


def test_arrow_functions_get_and_give_arrow():
    def double(given):
        assert isinstance(given, pa.RecordBatch)
        return pa.table({"half": [1.0] * len(given), "number": given.column("number")})

    served = server(double, arrow=True).serve(batch([1, 2]))
    assert served.tables[0].schema == SCHEMA


def test_a_function_without_a_topic_may_return_nothing():
    seen = []
    served = server(lambda frame: seen.append(len(frame)), schema=None).serve(batch([1, 2]))
    assert (served.tables, served.dead, seen) == ([], [], [2])


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (pd.DataFrame({"number": [1]}), "function 'halve' returned no column 'half'"),
        (pd.DataFrame({"number": [1], "half": ["?"]}), "in column 'half', not double"),
        (pd.DataFrame({"number": [1], "half": [1.0], "more": [1]}), "the column 'more'"),
        (None, "function 'halve' returned NoneType"),
        (pd.DataFrame({"number": [1, "a"], "half": [1.0, 2.0]}), "function 'halve' returned a mixed column"),
    ],
)
def test_a_wrong_schema_names_function_and_column(result, said):
    with pytest.raises(WrongSchema) as caught:
        server(lambda _frame: result).serve(batch([1]))
    assert said in str(caught.value)


def test_a_record_that_ends_the_process_becomes_a_dead_letter():
    def leaving(frame):
        if (frame["number"] == 3).any():
            raise SystemExit(7)
        return halve(frame)

    served = server(leaving).serve(batch([1, 3, 4]))
    assert [one.error for one in served.dead] == ["SystemExit: 7"]
    keyed = KeyedServer("leave", lambda *_: leaving(pd.DataFrame({"number": [3]})), None)
    assert [one.error for one in keyed.serve(("a",), pd.DataFrame({"number": [1]}), None)[0].dead] == [
        "SystemExit: 7"
    ]


def test_times_that_are_finer_than_spark_counts_are_cut_off():
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
    moments = pd.DataFrame({"at": pd.to_datetime([1_700_000_000_000_001_234], unit="ns", utc=True)})
    (table,) = server(lambda _frame: moments, schema=schema).serve(batch([1])).tables
    assert table.column("at").cast(pa.int64()).to_pylist() == [1_700_000_000_000_001]


def test_a_record_that_hangs_becomes_a_dead_letter():
    def stuck(frame):
        if (frame["number"] == 3).any():
            threading.Event().wait()  # for ever, unless it is interrupted
        return halve(frame)

    served = server(stuck, timeout=0.6).serve(batch([1, 2, 3, 4]))
    assert [json.loads(one.record)["number"] for one in served.dead] == [3]
    assert "TimeoutError: the call took longer than 0.6 s" in served.dead[0].error
    assert sum(len(table) for table in served.tables) == 3


def total(key, frame, state):
    if (frame["number"] < 0).any():
        raise ValueError("a negative number")
    now = (state[0] if state else 0) + int(frame["number"].sum())
    return pd.DataFrame({"number": [now], "half": [now / 2]}), (now,)


def test_a_keyed_function_keeps_its_state_around_a_record_that_fails():
    keyed = KeyedServer("total", total, SCHEMA)
    served, state = keyed.serve(("a",), pd.DataFrame({"number": [1, -5, 2]}), (10,))
    assert state == (13,)
    assert [table.column("number").to_pylist() for table in served.tables] == [[11], [13]]
    assert [json.loads(one.record)["number"] for one in served.dead] == [-5]


def test_a_keyed_function_serves_all_records_of_a_key_in_one_call():
    served, state = KeyedServer("total", total, SCHEMA).serve(("a",), pd.DataFrame({"number": [1, 2]}), None)
    assert (len(served.tables), state) == (1, (3,))
