"""The Grafana dashboard: made from the list of metrics, and every question of it has an answer."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest
import yaml

from penstock.cli import perform
from penstock.runtime.telemetry.alerts import ALERTS, write_rules
from penstock.runtime.telemetry.catalog import BY_NAME, METRICS
from penstock.runtime.telemetry.exposition import expose
from penstock.runtime.telemetry.server import MetricsServer
from penstock.view.grafana import list_expressions, make_dashboard
from tests.commands.command_line import Captured, last_json
from tests.prometheus_server import prometheus_server
from tests.runtime.telemetry.test_exposition import STATUS
from tests.waiting import wait_for

NO_PANEL = {"penstock_application_info", "penstock_loop_hang_limit_seconds"}


def named(expression: str) -> set[str]:
    return {name.removesuffix("_bucket") for name in re.findall(r"penstock_\w+", expression)}


def test_every_metric_has_its_panel_and_every_question_is_about_one() -> None:
    dashboard = make_dashboard()
    asked = set().union(*map(named, list_expressions(dashboard)))
    assert asked == set(BY_NAME) - NO_PANEL
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places) and len(places) > 8
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"]


def test_the_commands_write_files_and_json(capsys: Captured) -> None:
    assert perform(["metrics", "grafana"]) == 0
    assert orjson.loads(capsys.readouterr().out) == make_dashboard()
    assert perform(["metrics", "alerts"]) == 0
    assert len(yaml.safe_load(capsys.readouterr().out)["groups"][0]["rules"]) == len(ALERTS)
    assert perform(["metrics", "show"]) == 0
    assert "penstock_rollbacks_total" in capsys.readouterr().out
    for command, key in (("grafana", "dashboard"), ("alerts", "rules"), ("show", "metrics")):
        assert perform(["metrics", command, "--json"]) == 0
        assert key in last_json(capsys)


@pytest.mark.timeout(300)
def test_a_real_prometheus_scrapes_us_and_answers_the_dashboard(tmp_path: Path) -> None:
    token, rules = tmp_path / "token", tmp_path / "alerts.yml"
    token.write_text("0123456789abcdef")
    rules.write_text(write_rules())
    behind = {**STATUS, "now": 1e9, "queries": [{**STATUS["queries"][0], "latency_seconds": 2.0}]}
    text = expose([behind])
    with closing(MetricsServer("127.0.0.1:0", token.read_text(), lambda: text)) as server:
        target = urlsplit(server.url).netloc
        with prometheus_server(tmp_path, target, token, rules) as prometheus:
            wait_for("a scrape", lambda: prometheus.query("penstock_executors"))
            (held,) = prometheus.query('penstock_executors{kind="held"}')
            assert held["value"][1] == "3" and held["metric"]["name"] == "words"
            for metric in METRICS:
                suffix = "_count" if metric.kind == "histogram" else ""
                assert prometheus.query(metric.name + suffix), metric.name
            for expression in list_expressions(make_dashboard()):
                filled = expression.replace("$__rate_interval", "1m").replace("$application", ".*")
                prometheus.query(filled.replace("$name", ".*"))
            firing = wait_for("an alert", lambda: [one for one in prometheus.rules() if one["alerts"]])
            assert "PenstockBehind" in {one["name"] for one in firing}
            assert [one["name"] for one in prometheus.rules()] == [alert.name for alert in ALERTS]
