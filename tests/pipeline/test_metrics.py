"""A pipeline's metrics: each function as a query, and nothing that a pipeline does not know."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.metrics import tell_as_application
from penstock.runtime.telemetry.exposition import expose
from tests.runtime.telemetry.test_exposition import read_samples
from tests.view.dashboard.test_pipelines import a_function, a_pipeline


def test_functions_are_told_as_queries_and_figures_that_are_unknown_are_left_out() -> None:
    functions = {
        "split": a_function(["lines"], "words"),
        "count": a_function(["words"], None, arrival_per_second=math.nan, latency_seconds=2.5),
    }
    status = a_pipeline(application="app-1.words", mode="act", functions=functions)
    samples = {
        (name, dict(labels).get("query") or dict(labels).get("function")): value
        for (name, labels), value in read_samples(expose([tell_as_application(status)])).items()
        if dict(labels)["application"] == "app-1.words"
    }
    assert samples == {
        ("penstock_application_info", None): 1.0,
        ("penstock_source_offered_records_per_second", "split"): 120.0,
        ("penstock_source_observed_records_per_second", "split"): 118.0,
        ("penstock_source_observed_records_per_second", "count"): 118.0,
        ("penstock_source_backlog_records", "split"): 4321.0,
        ("penstock_source_backlog_records", "count"): 4321.0,
        ("penstock_source_backlog_seconds", "split"): 4321.0 / 120.0,
        ("penstock_latency_seconds", "count"): 2.5,
        **{("penstock_function_instances", name): 3.0 for name in functions},
        **{("penstock_function_dead_letters_total", name): 2.0 for name in functions},
    }


def test_the_heartbeat_is_told_where_there_is_one() -> None:
    heart = {"beats": 7, "silent_seconds": 2.0, "hangs_after_seconds": 60.0, "hangs": False}
    status = a_pipeline(now=1000.0, heartbeat=heart, functions={})
    found = {name: value for (name, _), value in read_samples(expose([tell_as_application(status)])).items()}
    assert found["penstock_loop_heartbeat_timestamp_seconds"] == 998.0
    assert found["penstock_loop_hang_limit_seconds"] == 60.0


PLAIN = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({"functions": PLAIN, "totals": PLAIN, "pipeline": PLAIN, "heartbeat": PLAIN}))
def test_whatever_another_version_answers_can_be_scraped(status: dict[str, Any]) -> None:
    read_samples(expose([tell_as_application(status)]))
