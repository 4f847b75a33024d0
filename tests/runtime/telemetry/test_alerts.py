"""The alert rules, as Prometheus's own tool runs them: each fires, and each stays silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.runtime.telemetry.alerts import ALERTS, list_rules, write_rules
from penstock.runtime.telemetry.catalog import BY_NAME
from penstock.runtime.telemetry.reference import write_reference
from tests.prometheus_server import promtool

WHO = {"application": "app-1", "name": "words"}
PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def series(metric: str, values: str, **labels: str) -> dict[str, str]:
    """One input series; a label that the list of metrics does not have is an error."""
    assert set(labels) == set(BY_NAME[metric].labels)
    written = ",".join(f'{key}="{value}"' for key, value in {**WHO, **labels}.items())
    return {"series": f"{metric}{{{written}}}", "values": values}


CASES: list[tuple[str, list[dict[str, str]], dict[str, bool], dict[str, str], str]] = [
    # alert, series by the minute, whether it fires at a time, its labels, its value
    (
        "PenstockBehind",
        [series("penstock_query_behind", "0 0 1x30 0x10", query="clicks")],
        {"1m": False, "11m": False, "13m": True, "34m": False},
        {"query": "clicks"},
        "1",
    ),
    (
        "PenstockHeartbeatLost",
        [
            series("penstock_loop_heartbeat_timestamp_seconds", "0+60x5 300x5 720+60x5"),
            series("penstock_loop_hang_limit_seconds", "30x20"),
        ],
        {"5m": False, "6m": False, "7m": True, "12m": False},
        {},
        "2m 0s",
    ),
    (
        "PenstockAtMaximum",
        [
            series("penstock_executors", "7 8x90 7x10", kind="held"),
            series("penstock_executors", "8x120", kind="allowed"),
        ],
        {"0m": False, "60m": False, "62m": True, "95m": False},
        {},
        "8",
    ),
    (
        "PenstockRollback",
        [series("penstock_rollbacks_total", "0x5 1x60")],
        {"5m": False, "8m": True, "40m": False},
        {},
        "1",
    ),
    (
        "PenstockRestartFailed",
        [
            series("penstock_restart_timestamp_seconds", "_x9 600x80", status="failed"),
            series("penstock_restart_timestamp_seconds", "0x90", status="done"),
        ],
        {"5m": False, "12m": True, "75m": False},
        {"status": "failed"},
        "120",
    ),
]


def expect(name: str, labels: dict[str, str], value: str) -> dict[str, Any]:
    """What Prometheus is to say of an alert, with the templates filled in by hand."""
    (rule,) = [one for one in list_rules()["groups"][0]["rules"] if one["alert"] == name]
    known = {**WHO, **labels}
    told = {}
    for key, text in rule["annotations"].items():
        for label, filled in known.items():
            text = text.replace(f"{{{{ $labels.{label} }}}}", filled)  # noqa: PLW2901
        told[key] = text.replace("{{ $value }}", value).replace("{{ $value | humanizeDuration }}", value)
    return {"exp_labels": {**known, **rule["labels"]}, "exp_annotations": told}


def test_every_alert_fires_and_stays_silent(tmp_path: Path) -> None:
    assert [case[0] for case in CASES] == [alert.name for alert in ALERTS]
    (tmp_path / "alerts.yml").write_text(write_rules())
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool("check", "rules", str(tmp_path / "alerts.yml"))
    checks = [
        {
            "interval": "1m",
            "input_series": inputs,
            "alert_rule_test": [
                {
                    "eval_time": at,
                    "alertname": name,
                    "exp_alerts": [expect(name, labels, value)] if fires else [],
                }
                for at, fires in times.items()
            ],
        }
        for name, inputs, times, labels, value in CASES
    ]
    whole = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": checks}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(whole))
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "tests.yml"))
    for check in checks:
        check["alert_rule_test"] = [
            {**one, "exp_alerts": []} for one in check["alert_rule_test"] if one["exp_alerts"]
        ]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(whole))
    with pytest.raises(AssertionError, match="got:"):
        promtool("test", "rules", str(tmp_path / "tests.yml"))


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_reference(), "run `make docs`"
