"""The metrics of a task mean the same under the names of the event log and of the status store."""

from __future__ import annotations

from penstock.diagnose.application_log import TASK_COLUMNS
from penstock.diagnose.task_metrics import MEASURES, live_measures, logged_measures


def nested(names):
    """Metrics in which each name has another value, large enough to be milliseconds after division."""
    metrics: dict[str, object] = {}
    for number, (section, name) in enumerate(dict.fromkeys(names), start=1):
        place = metrics.setdefault(section, {}) if section else metrics
        place[name] = number * 3_000_000
    return metrics


def test_both_sources_fill_the_same_columns_with_the_same_values():
    logged = logged_measures(nested(one.logged for one in MEASURES))
    assert logged == live_measures(nested(one.live for one in MEASURES))
    assert set(logged) <= set(TASK_COLUMNS)
    assert len(set(logged.values())) == len(logged)


def test_nanoseconds_become_milliseconds_and_parts_add_up():
    read = {"Remote Bytes Read": 5, "Local Bytes Read": 7, "Total Records Read": 2}
    metrics = {
        "Executor CPU Time": 12_999_999,
        "Shuffle Read Metrics": read,
        "Input Metrics": {"Records Read": 3},
    }
    found = logged_measures(metrics)
    assert (found["cpu"], found["remote_bytes"], found["shuffle_read_bytes"], found["records_in"]) == (
        12,
        5,
        12,
        5,
    )


def test_what_an_older_spark_does_not_tell_is_nothing():
    assert not any(logged_measures({"Shuffle Read Metrics": None}).values())
