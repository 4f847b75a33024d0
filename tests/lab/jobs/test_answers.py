"""Right answers of inputs that are small enough to work out by hand."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lab.jobs import answers
from penstock_lab.jobs.contents import FIRST_TIME_MS, Fed, OrderStream, Visits
from penstock_lab.jobs.tables import MEMBERS, make_model, watch_list


@dataclass(frozen=True)
class ByHand:
    """Content whose records are given; times are seconds after the feed's start."""

    tables: dict[str, list[dict]]
    streams: tuple[str, ...] = field(default=("orders",))

    def batch(self, fed, stream, first, count):
        rows = self.tables[stream][first : first + count]
        times = [name for name in rows[0] if name.endswith("time")]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        for name in times:
            at = FIRST_TIME_MS + np.round(1000 * np.array(columns[name])).astype(np.int64)
            columns[name] = pa.array(at, pa.timestamp("ms", "UTC"))
        return pa.RecordBatch.from_pydict(columns)

    def fed(self):
        """Return a feed of as many records as there are."""
        return Fed("constant:1", max(map(len, self.tables.values())))


def an_order(number, seconds, customer=0, product=0, amount=100, **given):
    """Return one order; its id is its number unless another is given."""
    plain = {"number": number, "order_id": number, "event_time": seconds, "customer": customer}
    return {**plain, "name": f"name {customer}", "product": product, "pieces": 1, "amount": amount, **given}


def at(seconds):
    """Return event time in milliseconds, so many seconds after the start."""
    return FIRST_TIME_MS + round(1000 * seconds)


def answer_of(answer, rows, **more):
    content = ByHand({"orders": rows})
    return set(answer(content, content.fed(), **more).elements())


TWO_WINDOWS = [
    an_order(0, 1, customer=1, product=7, amount=100),
    an_order(1, 9.999, customer=6, product=7, amount=30),
    an_order(2, 10, customer=2, product=7, amount=5),
    an_order(3, 12, customer=3, product=8, amount=1),
]


def test_windows_by_region_are_all_there():
    assert answer_of(answers.totals_by_region, TWO_WINDOWS) == {
        (at(0), 1, 2, 130),
        (at(10), 2, 1, 5),
        (at(10), 3, 1, 1),
    }


@pytest.mark.parametrize(("last", "closed"), [(19.999, False), (20, True), (29.999, True)])
def test_windows_are_closed_by_the_watermark(last, closed):
    found = answer_of(answers.closed_windows, [*TWO_WINDOWS, an_order(4, last)])
    assert found == ({(at(0), 7, 2, 130)} if closed else set())


def test_spending_is_by_pseudonym():
    secret = hashlib.pbkdf2_hmac("sha256", b"name 1", b"the shop", 3).hex()[:16]
    rows = [an_order(0, 1, customer=1, amount=5), an_order(1, 2, customer=1, amount=6), an_order(2, 30)]
    assert answer_of(answers.closed_spending, rows, iterations=3) == {(at(0), secret, 2, 11)}


def test_repeated_orders_count_once():
    rows = [an_order(0, 1, amount=10), an_order(1, 1, amount=10, order_id=0), an_order(2, 2, amount=20)]
    assert answer_of(answers.charges, rows) == {(0, 10, 10), (2, 20, 34)}
    hidden = hashlib.pbkdf2_hmac("sha256", b"name 0", b"the shop", 2).hex()[:16]
    assert answer_of(answers.orders_once, rows, iterations=2) == {(0, hidden, 10), (2, hidden, 20)}
    assert answer_of(answers.copies, rows, iterations=2) == {(0, hidden, 0, 10), (2, hidden, 0, 20)}


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("abc", "abd", 1), ("abcd", "bcda", 2)],
)
def test_edit_distances_of_the_textbook(one, other, distance):
    assert answers.edit_distance(one, other) == distance == answers.edit_distance(other, one)


def test_orders_near_a_watched_name_are_found():
    watched = watch_list()[0]
    near, far = f"{watched[:-1]}x", watch_list()[1]
    rows = [an_order(0, 1, name=near, amount=4), an_order(1, 3, name=near, amount=5)]
    rows += [an_order(2, 4, name=f"xxx{watched}"), an_order(3, 11, name=far[:-2])]
    assert answer_of(answers.watched_orders, rows) == {(at(0), watched, 2, 9), (at(10), far, 1, 100)}


def test_customers_are_watched_with_a_letter_replaced():
    fed = Fed("constant:100", 50)
    found = answers.watched_orders(OrderStream(), fed)
    orders = OrderStream().batch(fed, "orders", 0, fed.records).to_pandas()
    hits = sum(row[2] for row in found)
    assert hits == (orders["customer"].isin(range(0, 210, 7))).sum() > 100


def test_payments_belong_to_orders_of_the_twenty_seconds_before():
    orders = [an_order(0, 10, amount=7), an_order(2, 11, amount=8), an_order(4, 12, amount=9)]
    seconds = {0: 30, 2: 31.001, 4: 11.999}
    payments = [
        {"number": order + 1, "payment_time": at_, "paid_order": order, "paid": 50 + order}
        for order, at_ in seconds.items()
    ]
    content = ByHand({"orders": orders, "payments": payments}, ("orders", "payments"))
    assert answers.payments_in_time(content, content.fed()) == Counter([(0, 7, at(30), 50)])


def visits(*pairs):
    rows = [{"number": n, "event_time": s, "customer": c, "page": 0} for n, (c, s) in enumerate(pairs)]
    content = ByHand({"visits": rows}, ("visits",))
    return set(answers.closed_sessions(content, content.fed()))


def test_sessions_end_after_a_gap():
    found = visits((1, 0), (2, 1), (1, 5), (1, 10.001), (2, 30))
    assert found == {(1, at(0), at(5), 2), (1, at(10.001), at(10.001), 1), (2, at(1), at(1), 1)}


@pytest.mark.parametrize(("last", "closed"), [(14.999, False), (15, True)])
def test_the_last_session_of_a_customer_ends_with_the_watermark(last, closed):
    assert ((1, at(0), at(0), 1) in visits((1, 0), (2, last))) == closed


@given(st.integers(1, 60), st.integers(5, 60), st.integers(0, 5))
def test_sessions_are_those_of_a_plain_walk(rate, seconds, seed):
    fed, content = Fed(f"constant:{rate}", seconds, seed), Visits(groups=3, group_size=4, turn_ms=4000)
    views = answers.read_stream(content, fed, "visits")
    watermark = views["event_time"].max() - 10_000
    closed, still = [], {}
    for customer, when in zip(views["customer"], views["event_time"], strict=True):
        began, ended, count = still.get(customer, (when, when, 0))
        if when - ended > 5000:
            closed.append((customer, began, ended, count))
            began, count = when, 0
        still[customer] = (began, when, count + 1)
    closed += [(key, *value) for key, value in still.items() if value[1] + 5000 <= watermark]
    assert answers.closed_sessions(content, fed) == Counter(closed)


def test_three_places_and_two_queries():
    rows = [
        an_order(0, 1, customer=1, product=3, amount=10),
        an_order(1, 11, customer=1, product=3, amount=20),
    ]
    hidden = hashlib.pbkdf2_hmac("sha256", b"name 1", b"the shop", 2).hex()[:16]
    assert answer_of(answers.three_places, rows, iterations=2) == {
        ("customers", hidden, 1, 20),
        ("counts", 3, 2),
        ("orders", 0, hidden, 3, 10),
        ("orders", 1, hidden, 3, 20),
    }
    assert answer_of(answers.totals_and_archive, rows, iterations=2) == {
        ("totals", at(0), 3, 1, 10),
        ("totals", at(10), 3, 1, 20),
        ("archive", 0, hidden, 10),
        ("archive", 1, hidden, 20),
    }


def test_scores_are_those_of_the_networks():
    model = make_model()
    features = model["embedding"][4] * 3
    expected = 0
    for member in range(MEMBERS):
        hidden = [max(0.0, float(features @ column)) for column in model["hidden"][member].T]
        expected += int(np.dot(hidden, model["output"][member]))
    assert answers.score_order(4, 3) == expected != 0
    rows = [an_order(0, 1, customer=5, product=4, pieces=3), an_order(1, 2, customer=5, product=4, pieces=3)]
    assert answer_of(answers.scores, rows) == {(0, 5, expected), (1, 5, expected)}
    assert answer_of(answers.risks, rows) == {(5, 2, 2 * expected)}


def test_sums_of_weights_are_exact():
    """The largest score that the weights allow is far below where whole floats end."""
    model = make_model()
    assert all((weights == np.round(weights)).all() for weights in model.values())
    hidden = 5 * np.abs(model["embedding"]).max() * np.abs(model["hidden"]).sum(axis=1)
    assert (hidden * np.abs(model["output"])).sum() < 2**53


def test_credit_limits():
    rows = [an_order(0, 1, customer=3, amount=10), an_order(1, 2, customer=100, amount=20)]
    assert answer_of(answers.credit_limits, rows) == {(0, 10, 13_000), (1, 20, 13_000)}
