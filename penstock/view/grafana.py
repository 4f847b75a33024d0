"""A Grafana dashboard over all metrics, made from their list: import it as it is."""

from __future__ import annotations

from typing import Any

from penstock.runtime.telemetry.catalog import FLAG, METRICS, SINCE_1970, Metric

SCHEMA = 39
WIDTH, HEIGHT, COLUMNS = 12, 8, 2
SELECTED = 'name=~"$name",application=~"$application"'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {
    "seconds": "s",
    SINCE_1970: "s",
    "share": "percentunit",
    "records per second": "suffix: records/s",
    FLAG: "bool",
}
QUANTILES = (0.5, 0.95)


def make_dashboard() -> dict[str, Any]:
    """Return the dashboard: a panel for each chart and unit that the metrics name."""
    shown = [metric for metric in METRICS if metric.panel]
    grouped: dict[tuple[str, str], list[Metric]] = {}
    for metric in shown:
        grouped.setdefault((metric.panel, metric.unit), []).append(metric)
    panels = [_panel(at, *key, metrics) for at, (key, metrics) in enumerate(grouped.items())]
    return {
        "uid": "penstock",
        "title": "Penstock",
        "description": "Streaming applications and their autopilot. Written by `penstock metrics grafana`.",
        "tags": ["penstock", "spark"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source_variable(), _variable("name"), _variable("application")]},
        "annotations": {"list": [_mark_changes()]},
        "panels": panels,
    }


def list_expressions(dashboard: dict[str, Any]) -> list[str]:
    """List every expression of a dashboard."""
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*targets, *(one["expr"] for one in dashboard["annotations"]["list"])]


def _panel(at: int, title: str, unit: str, metrics: list[Metric]) -> dict[str, Any]:
    targets = [target for metric in metrics for target in _targets(metric)]
    row, column = divmod(at, COLUMNS)
    return {
        "id": at + 1,
        "type": "timeseries",
        "title": f"{title} ({unit})" if unit not in (SINCE_1970, FLAG) else title,
        "description": "\n\n".join(f"{metric.name}: {metric.help}" for metric in metrics),
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": UNITS.get(unit, "short"), "min": 0, "custom": {"fillOpacity": 8}},
            "overrides": [],
        },
        "options": {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [{**one, "refId": chr(ord("A") + number)} for number, one in enumerate(targets)],
    }


def _targets(metric: Metric) -> list[dict[str, Any]]:
    labels = " ".join(f"{{{{{label}}}}}" for label in ("name", *metric.labels))
    short = metric.name.removeprefix("penstock_").removesuffix("_total").replace("_", " ")
    by = ", ".join(metric.all_labels)
    if metric.kind == "histogram":
        buckets = f"rate({metric.name}_bucket{{{SELECTED}}}[$__rate_interval])"
        return [
            _target(f"histogram_quantile({share}, sum by (le, {by}) ({buckets}))", f"{labels} {share:.0%}")
            for share in QUANTILES
        ]
    selected = f"{metric.name}{{{SELECTED}}}"
    if metric.kind == "counter":
        return [_target(f"sum by ({by}) (increase({selected}[$__rate_interval]))", f"{labels} {short}")]
    if metric.unit == SINCE_1970:
        return [_target(f"time() - {selected}", f"{labels} {short.removesuffix(' timestamp seconds')}")]
    return [_target(selected, f"{labels} {short}")]


def _target(expression: str, legend: str) -> dict[str, Any]:
    return {"expr": expression, "legendFormat": legend, "datasource": SOURCE}


def _mark_changes() -> dict[str, Any]:
    """Mark where the number of executors changed, in every panel."""
    return {
        "name": "changes of size",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "orange",
        "expr": f'changes(penstock_executors{{{SELECTED},kind="held"}}[$__rate_interval]) > 0',
        "step": "10s",
        "titleFormat": "{{name}} changed its size",
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(label: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "label": label,
        "datasource": SOURCE,
        "query": f"label_values(penstock_application_info, {label})",
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }
