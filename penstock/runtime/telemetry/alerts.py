"""Alert rules for Prometheus, over the metrics of the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]

from penstock.runtime.telemetry.catalog import BY_NAME

_WHO = "{{ $labels.name }} ({{ $labels.application }})"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: fires when the expression has held for so long."""

    name: str
    expression: str
    hold: str
    severity: str
    summary: str
    description: str

    def plain(self) -> dict[str, Any]:
        """Return it as a rule of Prometheus."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.hold,
            "labels": {"severity": self.severity},
            "annotations": {"summary": f"{_WHO} {self.summary}", "description": self.description},
        }


def _metric(name: str, **labels: str) -> str:
    """Write a selector; a metric or a label that the catalog does not have is an error here."""
    metric = BY_NAME[name]
    assert set(labels) <= set(metric.all_labels), f"{name} has no such label"
    selected = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{selected}}}" if selected else name


ALERTS = (
    Alert(
        "PenstockBehind",
        f"{_metric('penstock_query_behind')} == 1",
        "10m",
        "warning",
        "has been behind for 10 minutes",
        "Query {{ $labels.query }} takes over 5 % longer than its trigger interval for a batch, or its "
        "backlog exceeds the records of one interval. `penstock status` says what its batches wait for.",
    ),
    Alert(
        "PenstockHeartbeatLost",
        f"time() - {_metric('penstock_loop_heartbeat_timestamp_seconds')} > "
        f"{_metric('penstock_loop_hang_limit_seconds')}",
        "1m",
        "critical",
        "has an autopilot that hangs",
        "The loop has not come round for {{ $value | humanizeDuration }}. The driver's log says where it "
        "hangs; the application itself runs on at the size that it has.",
    ),
    Alert(
        "PenstockAtMaximum",
        f"{_metric('penstock_executors', kind='held')} >= ignoring(kind) "
        f"{_metric('penstock_executors', kind='allowed')}",
        "1h",
        "warning",
        "has been at its maximum for an hour",
        "It holds {{ $value }} executors, as many as `max_executors` allows.",
    ),
    Alert(
        "PenstockRollback",
        f"increase({_metric('penstock_rollbacks_total')}[15m]) > 0",
        "0m",
        "warning",
        "has had a change undone",
        "After the change the application did worse, so it went back. `penstock actions` lists both.",
    ),
    Alert(
        "PenstockRestartFailed",
        f"time() - {_metric('penstock_restart_timestamp_seconds', status='failed')} < 3600",
        "0m",
        "critical",
        "could not be restarted with other settings",
        "The settings from before are used. `penstock actions` says why it failed.",
    ),
)


def list_rules() -> dict[str, Any]:
    """Return all alerts as plain data, in the form of a rules file."""
    return {"groups": [{"name": "penstock", "rules": [alert.plain() for alert in ALERTS]}]}


def write_rules() -> str:
    """Write the rules file."""
    text: str = yaml.safe_dump(list_rules(), sort_keys=False, width=100, allow_unicode=True)
    return (
        f"# Written by `penstock metrics alerts`: name this file under rule_files in prometheus.yml.\n{text}"
    )
