"""`penstock metrics`: the list of metrics, a Grafana dashboard and alert rules, all from that list."""

from __future__ import annotations

import sys

import orjson
from rich.table import Table

from penstock.commands.printing import Json, answer, print_json


def show(as_json: Json = False) -> None:
    """List the metrics that a driver serves, with their units and labels."""
    from penstock.runtime.telemetry.catalog import METRICS

    told = [
        {
            "name": metric.name,
            "type": metric.kind,
            "unit": metric.unit,
            "labels": list(metric.all_labels),
            "help": metric.help,
        }
        for metric in METRICS
    ]
    table = Table(box=None, header_style="bold")
    table.add_column("metric", no_wrap=True, overflow="fold")
    table.add_column("what it tells")
    for metric in METRICS:
        table.add_row(metric.name, metric.help)
    answer({"metrics": told}, as_json, table)


def grafana(as_json: Json = False) -> None:
    """Write a Grafana dashboard to standard output, ready to import."""
    from penstock.view.grafana import make_dashboard

    dashboard = make_dashboard()
    if as_json:
        print_json({"dashboard": dashboard})
    else:
        sys.stdout.write(orjson.dumps(dashboard, option=orjson.OPT_INDENT_2).decode() + "\n")


def alerts(as_json: Json = False) -> None:
    """Write alert rules for Prometheus to standard output."""
    from penstock.runtime.telemetry.alerts import list_rules, write_rules

    if as_json:
        print_json({"rules": list_rules()})
    else:
        sys.stdout.write(write_rules())
