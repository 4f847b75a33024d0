"""The text that Prometheus scrapes: every metric of the list, from a status, whatever that holds."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.decide.policy import Hold
from penstock.runtime.telemetry.catalog import BY_NAME, IDENTITY, METRICS, MOST_SERIES
from penstock.runtime.telemetry.exposition import LONGEST_LABEL, expose
from tests.fakes import FixedPolicy, a_scale
from tests.runtime.test_attach import Bench
from tests.waiting import wait_for

STATUS: dict[str, Any] = {
    "application": "app-1",
    "name": "words",
    "policy": "ds2",
    "mode": "act",
    "paused": False,
    "now": 1000.0,
    "executors": 3,
    "slots": 6,
    "slots_needed": 7.2,
    "bounds": {"least": 1, "most": 8},
    "heartbeat": {"silent_seconds": 2.5, "hangs_after_seconds": 30.0},
    "queries": [
        {
            "name": "clicks", "offered_per_second": 100.0, "observed_per_second": 80.0,
            "backlog_records": 500.0, "batch_seconds": 8.0, "period_seconds": 10.0,
            "latency_seconds": None, "behind": True,
        }
    ],
    "totals": {
        "decisions": [{"kind": "rejected", "reason": "bounds", "count": 4}],
        "actions": [{"kind": "scale-out", "status": "done", "count": 2}],
        "action_seconds": [{"kind": "scale-out", "up_to": [1.0, 5.0], "counts": [1, 0, 1], "sum": 9.5}],
        "rollbacks": 1,
        "failed_cycles": 0,
        "slot_seconds": 60.0,
        "prediction_errors": {"batch_seconds": 0.1},
        "restarts": {"failed": 900.0},
    },
    "notifications": {"sent": 3, "dropped": 1},
    "functions": {"split": {"parallelism": 3, "dead_letters": 2}, "spoilt": 7},
}  # fmt: skip


def read_samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Series → value, as Prometheus's own format has them; a series that comes twice is an error."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            own = tuple(sorted((k, v) for k, v in sample.labels.items() if k not in IDENTITY))
            key = (sample.name, (*own, *((k, sample.labels[k]) for k in IDENTITY)))
            assert key not in found, f"{key} comes twice"
            found[key] = sample.value
    return found


def tell(*statuses: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The same by the values of the metrics' own labels, for one application."""
    return {
        (name, "/".join(value for key, value in labels if key not in IDENTITY)): value
        for (name, labels), value in read_samples(expose(statuses)).items()
    }


def test_every_metric_is_read_from_a_status() -> None:
    told = tell(STATUS)
    assert told == {
        ("penstock_application_info", "act/ds2"): 1.0,
        ("penstock_source_offered_records_per_second", "clicks"): 100.0,
        ("penstock_source_observed_records_per_second", "clicks"): 80.0,
        ("penstock_source_backlog_records", "clicks"): 500.0,
        ("penstock_source_backlog_seconds", "clicks"): 5.0,
        ("penstock_query_behind", "clicks"): 1.0,
        ("penstock_batch_seconds", "clicks"): 8.0,
        ("penstock_trigger_seconds", "clicks"): 10.0,
        ("penstock_function_instances", "split"): 3.0,
        ("penstock_function_dead_letters_total", "split"): 2.0,
        ("penstock_executors", "held"): 3.0,
        ("penstock_executors", "needed"): 4.0,  # 7.2 slots at two an executor
        ("penstock_executors", "allowed"): 8.0,
        ("penstock_slots", "held"): 6.0,
        ("penstock_slots", "needed"): 7.2,
        ("penstock_slot_seconds_total", ""): 60.0,
        ("penstock_decisions_total", "rejected/bounds"): 4.0,
        ("penstock_actions_total", "scale-out/done"): 2.0,
        ("penstock_action_seconds_bucket", "scale-out/1.0"): 1.0,
        ("penstock_action_seconds_bucket", "scale-out/5.0"): 1.0,
        ("penstock_action_seconds_bucket", "scale-out/+Inf"): 2.0,
        ("penstock_action_seconds_count", "scale-out"): 2.0,
        ("penstock_action_seconds_sum", "scale-out"): 9.5,
        ("penstock_rollbacks_total", ""): 1.0,
        ("penstock_prediction_error_ratio", "batch_seconds"): 0.1,
        ("penstock_restart_timestamp_seconds", "failed"): 900.0,
        ("penstock_loop_heartbeat_timestamp_seconds", ""): 997.5,
        ("penstock_loop_hang_limit_seconds", ""): 30.0,
        ("penstock_failed_cycles_total", ""): 0.0,
        ("penstock_paused", ""): 0.0,
        ("penstock_notifications_total", "sent"): 3.0,
        ("penstock_notifications_total", "dropped"): 1.0,
    }


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric) -> None:
    assert re.fullmatch(r"penstock(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    if metric.unit.startswith("seconds"):
        assert metric.name.endswith("_seconds")
    assert metric.help.endswith(".") and not set(IDENTITY) & set(metric.labels)
    assert BY_NAME[metric.name] is metric


def test_a_foreign_name_is_escaped_and_bounded_and_comes_once() -> None:
    name = 'a"b\\c\nd</script>{}' + "é" * 500
    queries = [{"name": name, "backlog_records": 1.0}, {"name": name, "backlog_records": 2.0}]
    text = expose([{**STATUS, "name": "\ud800 lone", "queries": queries}, STATUS, STATUS])
    samples = read_samples(text)
    (found,) = [
        labels for (metric, labels) in samples
        if metric == "penstock_source_backlog_records" and labels[-1] == ("name", "? lone")
    ]  # fmt: skip
    assert dict(found)["query"] == name[:LONGEST_LABEL]
    assert sum(metric == "penstock_paused" for metric, _ in samples) == 2, (
        "of the same application one counts"
    )


def test_queries_without_end_do_not_become_series_without_end() -> None:
    queries = [{"name": f"query-{number}", "backlog_records": 1.0} for number in range(10 * MOST_SERIES)]
    told = tell({**STATUS, "queries": queries})
    assert sum(name == "penstock_source_backlog_records" for name, _ in told) == MOST_SERIES


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PARTS = {key: ANYTHING | st.just(value) for key, value in STATUS.items()}


OTHER = {**STATUS, "application": "app-2"}
TOLD_OF_OTHER = read_samples(expose([OTHER]))


@settings(max_examples=30)
@given(st.fixed_dictionaries({}, optional=PARTS), st.fixed_dictionaries({}, optional={
    key: ANYTHING | st.just(value) for key, value in STATUS["totals"].items()}))  # fmt: skip
def test_a_status_of_another_version_costs_what_it_does_not_hold_and_nothing_else(status, totals) -> None:
    samples = read_samples(expose([{**status, "totals": totals}, OTHER]))
    assert samples.items() >= TOLD_OF_OTHER.items()


def test_a_running_autopilot_tells_its_metrics(bench: Bench) -> None:
    bench.source.seconds = 0.05
    handle = bench.autopilot(FixedPolicy(a_scale(5), Hold("right", {"slots_needed": 4.0})))
    wait_for("an effect", lambda: handle.status()["totals"]["prediction_errors"])
    told = tell(handle.status())
    assert told["penstock_decisions_total", "scale-out/policy"] == 1.0
    assert told["penstock_actions_total", "scale-out/done"] == 1.0
    assert told["penstock_action_seconds_bucket", "scale-out/5.0"] == 1.0  # it took five seconds
    assert told["penstock_prediction_error_ratio", "batch_seconds"] == pytest.approx(0.5 / 7.5)
    assert told["penstock_executors", "held"] == 5.0 and told["penstock_executors", "needed"] == 2.0
    assert told["penstock_executors", "allowed"] == 64.0
    assert told["penstock_slot_seconds_total", ""] > 0 and told["penstock_query_behind", "words"] == 0.0
