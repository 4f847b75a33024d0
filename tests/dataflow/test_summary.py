from __future__ import annotations

import pytest

from penstock.dataflow.summary import measured_figures, summarise
from tests.fakes import a_query, a_window


def test_one_slow_batch_says_little():
    assert summarise(a_query(batch_seconds=(2.0, 2.2, 30.0))).batch_seconds == 2.2


def test_a_query_without_a_finished_batch_has_no_batch_time():
    assert summarise(a_query(batch_seconds=())).batch_seconds is None


def test_queries_that_share_slots_add_their_rates_and_the_busiest_is_judged():
    window = a_window(
        queries=[
            a_query(name="a", offered=10, observed=9, backlog=1, batch_seconds=(4.0,), period=5.0),
            a_query(name="b", offered=20, observed=20, backlog=2, batch_seconds=(6.0,), period=10.0),
        ]
    )
    assert measured_figures(window) == pytest.approx(
        {
            "offered_per_second": 30,
            "observed_per_second": 29,
            "backlog_records": 3,
            "batch_seconds": 4.0,
            "utilisation_ratio": 0.8,
        }
    )


def test_what_was_not_measured_is_not_stated():
    back_to_back = measured_figures(a_window(queries=[a_query(period=None, batch_seconds=(3.0,))]))
    assert back_to_back["batch_seconds"] == 3.0 and "utilisation_ratio" not in back_to_back
    assert set(measured_figures(a_window(queries=()))) == {
        "offered_per_second",
        "observed_per_second",
        "backlog_records",
    }
