"""What runs on executors, called as Spark calls it: results out, and an account of the work."""

from __future__ import annotations

import pandas as pd

from penstock.pipeline.serving import OUTCOME, KeyedServer, Server
from penstock.pipeline.spark_worker import WorkParam, make_batch_call, make_keyed_call
from tests.pipeline.test_serving import SCHEMA, batch, halve, total


class Account:
    """An accumulator of this process alone."""

    def __init__(self):
        self.work = {}

    def add(self, more):
        self.work = WorkParam().addInPlace(self.work, more)


class KeptState:
    def __init__(self, value=None):
        self.value = value

    @property
    def exists(self):
        return self.value is not None

    @property
    def get(self):
        return self.value

    def update(self, value):
        self.value = value

    def remove(self):
        self.value = None


def test_an_instance_serves_its_partition_and_says_what_it_did():
    account = Account()
    call = make_batch_call(Server("halve", halve, False, SCHEMA), SCHEMA, account)
    found = [row for one in call(iter([batch([1, 2]), batch([-1, 4])])) for row in one.to_pylist()]
    assert [row[OUTCOME] for row in found] == ["served", "served", "served", "dead"]
    read, written, dead, seconds = account.work[0]
    assert (read, written, dead) == (4, 3, 1) and seconds > 0


def test_a_partition_without_records_is_told_too():
    account = Account()
    assert list(make_batch_call(Server("halve", halve, False, SCHEMA), SCHEMA, account)(iter([]))) == []
    assert account.work[0][:3] == [0, 0, 0]


def test_a_keyed_function_finds_its_state_again_and_may_forget_it():
    account, state = Account(), KeptState()
    call = make_keyed_call(KeyedServer("total", total, SCHEMA), account)
    (first,) = call(("a",), iter([pd.DataFrame({"number": [1, 2]})]), state)
    (second,) = call(("a",), iter([pd.DataFrame({"number": [4]}), pd.DataFrame({"number": [-1]})]), state)
    assert first["number"].tolist() == [3]
    assert second["number"].tolist()[0] == 7 and second[OUTCOME].tolist() == ["served", "dead"]
    assert state.value == (7,) and account.work[0][:3] == [4, 2, 1]
    forget = make_keyed_call(KeyedServer("gone", lambda *_: (None, None), None), account)
    (nothing,) = forget(("a",), iter([pd.DataFrame({"number": [1]})]), state)
    assert len(nothing) == 0 and not state.exists


def test_a_keyed_function_gets_its_records_in_the_order_that_was_asked_for():
    seen = []
    server = KeyedServer("see", lambda key, frame, state: (seen.extend(frame["number"]), None), None)
    call = make_keyed_call(server, Account(), order="number")
    list(call(("a",), iter([pd.DataFrame({"number": [3, 1]}), pd.DataFrame({"number": [2]})]), KeptState()))
    assert seen == [1, 2, 3]


def test_work_of_two_tasks_adds_up():
    param = WorkParam()
    assert param.zero({0: [1.0, 1, 1, 1]}) == {}
    added = param.addInPlace({0: [1.0, 2.0, 0.0, 0.5]}, {0: [1.0, 0.0, 1.0, 0.5], 3: [5.0, 5.0, 0.0, 1.0]})
    assert added == {0: [2.0, 2.0, 1.0, 1.0], 3: [5.0, 5.0, 0.0, 1.0]}
