"""What runs on executors, called as Spark calls it: results out, and an account of the work."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from penstock.pipeline.serving import DEAD, OUTCOME, KeyedServer, Server
from penstock.pipeline.spark_worker import Link, WorkParam, make_batch_call, make_keyed_call
from penstock.pipeline.timestamps import ARRIVED, ENTERED
from tests.pipeline.test_serving import SCHEMA, halve, total


class Account:
    """An accumulator of this process alone."""

    def __init__(self):
        self.work = {}

    def add(self, more):
        self.work = WorkParam().addInPlace(self.work, more)


class Hands:
    """A clock that only moves when somebody takes time."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def take(self, seconds, value=None):
        self.now += seconds
        return value

    def arrive(self, *batches):
        """Yield batches, one a second."""
        for one in batches:
            self.now += 1.0
            yield one


def batch(numbers, entered=0.0, arrived=0.0):
    return pa.RecordBatch.from_pandas(frame(numbers, entered, arrived), preserve_index=False)


def frame(numbers, entered=0.0, arrived=0.0):
    return pd.DataFrame({"number": numbers, ENTERED: entered, ARRIVED: arrived})


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
    call = make_batch_call([Link(Server("halve", halve, False, SCHEMA), account)])
    found = [row for one in call(iter([batch([1, 2]), batch([-1, 4])])) for row in one.to_pylist()]
    assert [row[OUTCOME] for row in found] == ["served", "served", "served", DEAD.format("halve")]
    assert account.work[0][:3] == [4, 3, 1]


def test_a_function_that_costs_nothing_has_no_useful_time_however_long_it_waits():
    clock, account = Hands(), Account()
    call = make_batch_call([Link(Server("halve", halve, False, SCHEMA), account)], clock)
    for _ in call(clock.arrive(batch([1]), batch([2]), batch([3]))):
        clock.take(1.0)  # whoever reads the results is slow, too
    assert clock.now == 106.0
    assert account.work[0][3] == 0.0


def test_useful_time_is_that_of_the_calls():
    clock, account = Hands(), Account()
    server = Server("halve", lambda records: clock.take(0.25 * len(records), halve(records)), False, SCHEMA)
    call = make_batch_call([Link(server, account)], clock)
    for _ in call(clock.arrive(batch([1, 2]), batch([3, 4]))):
        clock.take(7.0)
    assert account.work[0][3] == pytest.approx(4 * 0.25)


def test_a_keyed_function_does_not_wait_usefully_either():
    clock, account = Hands(), Account()
    server = KeyedServer("total", lambda *given: clock.take(0.5, total(*given)), SCHEMA)
    call = make_keyed_call(server, account, clock=clock)
    for _ in call(("a",), clock.arrive(frame([1]), frame([2])), KeptState()):
        clock.take(7.0)
    assert account.work[0][3] == pytest.approx(0.5)


def test_a_function_sees_no_moments_and_its_results_go_on_with_the_mean_of_its_records():
    account, seen = Account(), []
    server = Server("halve", lambda records: seen.append(list(records)) or halve(records), False, SCHEMA)
    call = make_batch_call([Link(server, account)])
    given = [batch([1, 2, 3], [10.0, 20.0, 60.0], 70.0), batch([-4], 80.0, 90.0)]
    found = [row for one in call(iter(given)) for row in one.to_pylist()]
    assert seen == [["number"]] * 2
    assert [row[ENTERED] for row in found] == [30.0, 30.0, 30.0, None]
    assert account.work[0][4:] == [10 + 20 + 60 + 80, 3 * 70 + 90]


def test_results_of_a_key_go_on_with_the_mean_of_its_records():
    account = Account()
    call = make_keyed_call(KeyedServer("total", total, SCHEMA), account)
    (found,) = call(("a",), iter([frame([1, 2], [10.0, 20.0], 50.0), frame([3], 60.0, 80.0)]), KeptState())
    assert found[ENTERED].tolist() == [30.0]
    assert account.work[0][4:] == [90.0, 180.0]


def test_a_partition_without_records_is_told_too():
    account = Account()
    assert list(make_batch_call([Link(Server("halve", halve, False, SCHEMA), account)])(iter([]))) == []
    assert account.work[0][:3] == [0, 0, 0]


def test_a_keyed_function_finds_its_state_again_and_may_forget_it():
    account, state = Account(), KeptState()
    call = make_keyed_call(KeyedServer("total", total, SCHEMA), account)
    (first,) = call(("a",), iter([frame([1, 2])]), state)
    (second,) = call(("a",), iter([frame([4]), frame([-1])]), state)
    assert first["number"].tolist() == [3]
    assert second["number"].tolist()[0] == 7 and second[OUTCOME].tolist() == ["served", DEAD.format("total")]
    assert state.value == (7,) and account.work[0][:3] == [4, 2, 1]
    forget = make_keyed_call(KeyedServer("gone", lambda *_: (None, None), None), account)
    (nothing,) = forget(("a",), iter([frame([1])]), state)
    assert len(nothing) == 0 and not state.exists


def test_a_keyed_function_gets_its_records_in_the_order_that_was_asked_for():
    seen = []
    server = KeyedServer("see", lambda key, frame, state: (seen.extend(frame["number"]), None), None)
    call = make_keyed_call(server, Account(), order="number")
    list(call(("a",), iter([frame([3, 1]), frame([2])]), KeptState()))
    assert seen == [1, 2, 3]


def test_work_of_two_tasks_adds_up():
    param = WorkParam()
    assert param.zero({0: [1.0] * 6}) == {}
    one, other, third = [1.0, 2.0, 0.0, 0.5, 9.0, 8.0], [1.0, 0.0, 1.0, 0.5, 1.0, 1.0], [5.0] * 6
    added = param.addInPlace({0: one}, {0: other, 3: third})
    assert added == {0: [2.0, 2.0, 1.0, 1.0, 10.0, 9.0], 3: third}


def test_functions_in_a_chain_serve_what_the_one_before_returned_and_each_accounts_for_itself():
    clock, accounts, seen = Hands(), [Account(), Account()], []

    def after(records):
        seen.append(records["number"].tolist())
        return clock.take(0.5, records.assign(number=records["number"] * 10))

    servers = [
        Server("halve", lambda records: clock.take(0.25 * len(records), halve(records)), False, SCHEMA),
        Server("ten", after, False, SCHEMA),
    ]
    links = [Link(server, account) for server, account in zip(servers, accounts, strict=True)]
    call = make_batch_call(links, clock, calendar=lambda: 1000.0)
    found = [row for one in call(iter([batch([2, 4], [10.0, 20.0], 70.0)])) for row in one.to_pylist()]
    assert [row["number"] for row in found] == [20, 40] and seen == [[2, 4]]
    assert [row[ENTERED] for row in found] == [15.0, 15.0]
    assert accounts[0].work[0] == [2, 2, 0, 0.5, 30.0, 140.0]
    # handed over at the moment at which the first had ended
    assert accounts[1].work[0] == [2, 2, 0, 0.5, 30.0, 2000.0]


def test_in_a_chain_a_dead_letter_is_that_of_the_function_that_failed():
    accounts = [Account(), Account()]

    def picky(records):
        if (records["half"] == 2).any():
            raise ValueError("no twos")
        return records

    servers = [Server("halve", halve, False, SCHEMA), Server("picky", picky, False, SCHEMA)]
    call = make_batch_call([Link(*pair) for pair in zip(servers, accounts, strict=True)])
    found = [row for one in call(iter([batch([-2, 4, 6])])) for row in one.to_pylist()]
    assert sorted(row[OUTCOME] for row in found) == ["dead.halve", "dead.picky", "served"]
    assert [account.work[0][:3] for account in accounts] == [[3, 2, 1], [2, 1, 1]]


def test_a_function_that_is_left_nothing_by_the_one_before_is_not_called():
    account, calls = Account(), []
    none = Server("none", lambda records: halve(records)[:0], False, SCHEMA)
    last = Server("last", lambda records: calls.append(records) or records, False, SCHEMA)
    call = make_batch_call([Link(none, Account()), Link(last, account)])
    assert [len(one) for one in call(iter([batch([1, 2])]))] == []
    assert (calls, account.work[0][:3]) == ([], [0, 0, 0])
