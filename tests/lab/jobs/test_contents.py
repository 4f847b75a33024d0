"""Records follow from their numbers, come at their times, and have the shares that were asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock_lab.jobs.contents import FIRST_TIME_MS, Fed, OrdersAndPayments, OrderStream, Visits, name_of

PROFILES = ["constant:40", "steps:0=5,10=200", "bursts:base=0,peak=90,every=20,length=5"]
CONTENTS = [OrderStream(), OrderStream(duplicates=0.3, hot_share=0.5), OrdersAndPayments(), Visits()]


def many(content, stream, rate=100, seconds=100, seed=1):
    fed = Fed(f"constant:{rate}", seconds, seed)
    return fed, content.batch(fed, stream, 0, fed.records).to_pandas()


@given(st.sampled_from(CONTENTS), st.sampled_from(PROFILES), st.integers(0, 3), st.data())
def test_a_record_does_not_depend_on_what_is_asked_for_with_it(content, profile, seed, data):
    fed = Fed(profile, 60, seed)
    first = data.draw(st.integers(0, fed.records - 1))
    count = data.draw(st.integers(0, fed.records - first))
    for stream in content.streams:
        whole = content.batch(fed, stream, 0, fed.records).to_pylist()
        part = content.batch(fed, stream, first, count).to_pylist()
        assert part == [row for row in whole if first <= row["number"] < first + count]


@pytest.mark.parametrize("content", CONTENTS)
def test_every_record_is_in_one_stream(content):
    fed = Fed("constant:50", 10)
    batches = [content.batch(fed, stream, 0, fed.records) for stream in content.streams]
    numbers = [number for batch in batches for number in batch.column("number").to_pylist()]
    assert sorted(numbers) == list(range(500))


def test_event_times_are_those_of_the_profile():
    fed = Fed("steps:0=10,5=100", 10)
    times = fed.event_times(0, fed.records) - FIRST_TIME_MS
    assert fed.records == 550
    assert times[[0, 10, 49]] == pytest.approx([0, 1000, 4900], abs=2)
    assert times[[50, 150, 549]] == pytest.approx([5000, 6000, 9990], abs=2)
    assert (np.diff(times) >= 0).all()


def test_another_seed_gives_other_records():
    one, other = (many(OrderStream(), "orders", seed=seed)[1] for seed in (1, 2))
    assert (one["customer"] != other["customer"]).mean() > 0.9


def test_some_orders_are_late_and_none_too_late():
    fed, orders = many(OrderStream(late_share=0.1), "orders")
    times = orders["event_time"].dt.tz_localize(None).astype("datetime64[ms]").astype("int64")
    late = fed.event_times(0, fed.records) - times
    assert late.between(0, 2000).all()
    assert (late > 0).mean() == pytest.approx(0.1, abs=0.02)


def test_repeated_orders_are_the_same_and_not_old():
    _, orders = many(OrderStream(duplicates=0.2), "orders", rate=20)
    repeated = orders[orders["number"] != orders["order_id"]]
    assert len(repeated) / len(orders) == pytest.approx(0.2, abs=0.03)
    assert (repeated["number"] - repeated["order_id"]).between(1, 50).all()
    assert len(orders.drop(columns="number").drop_duplicates()) == orders["order_id"].nunique()
    highest = orders["event_time"].cummax()
    assert (highest - orders["event_time"]).dt.total_seconds().max() <= 7.1


def test_nothing_from_before_a_night_is_repeated_after_it():
    fed = Fed("bursts:base=0,peak=20,every=60,length=5", 125, seed=2)
    orders = OrderStream(duplicates=0.5, late_share=0).batch(fed, "orders", 0, fed.records).to_pandas()
    behind = orders["event_time"].cummax() - orders["event_time"]
    assert behind.dt.total_seconds().max() <= 5
    assert (orders["number"] != orders["order_id"]).mean() > 0.3


def test_one_customer_sends_the_share_that_is_asked_for():
    _, orders = many(OrderStream(hot_share=0.5), "orders")
    assert (orders["customer"] == 0).mean() == pytest.approx(0.5, abs=0.02)
    assert orders["customer"].nunique() == 500
    assert len(set(name_of(np.arange(500)))) == 500


def test_payments_are_for_orders_shortly_before():
    _, payments = many(OrdersAndPayments(), "payments")
    assert (payments["number"] % 2 == 1).all() and (payments["paid_order"] % 2 == 0).all()
    back = payments["number"] - payments["paid_order"]
    assert back.between(1, 200).all() and back.nunique() > 90


def test_customers_take_turns():
    _, visits = many(Visits(), "visits", rate=50, seconds=40)
    turns = (visits["number"] // 50) // 8
    assert (visits["customer"] // 20 == turns % 5).all()


def test_a_feed_has_a_length_and_a_seed():
    for bad in ({"seconds": 0}, {"seconds": float("nan")}, {"seconds": 1, "seed": -1}):
        with pytest.raises(BadInput):
            Fed("constant:1", **bad)
