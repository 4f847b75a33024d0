"""`penstock workload` before and after Spark: its options, its list, its figures."""

import subprocess
import sys
from dataclasses import replace

import orjson
import pytest
from rich.console import Console

from penstock.cli import perform
from penstock.errors import BadInput
from penstock_lab.commands.workload import (
    check_options,
    describe_few,
    describe_outcome,
    find_mean_rate,
    parse_rate,
    render_result,
)
from penstock_lab.experiments.batches import LoadOutcome
from penstock_lab.workloads.catalog import WORKLOADS, Ask, require_package

OUTCOME = LoadOutcome(1000.0, 990.04, 800.0, 1200.0, 1500.0, 400.0, 12.0, 8, 12.0)


def test_the_list_names_every_workload(capsys):
    assert perform(["workload", "--list", "--json"]) == 0
    listed = orjson.loads(capsys.readouterr().out.splitlines()[-1])["workloads"]
    assert [row["name"] for row in listed] == list(WORKLOADS)
    assert {"word-count", "key-count", "paced", "nexmark-q11", "yahoo"} <= set(WORKLOADS)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "word-count"),
        (["no-such"], "no-such"),
        (["paced", "--rate", "fast"], "--rate: the rate profile 'constant:fast'"),
        (["paced", "--rate", "steps:0"], "--rate: '0' is not of the form name=value"),
        (["paced", "--rate", "0"], "--rate: 0 offers no record in 40 s"),
        (["paced", "--rate", "steps:60=5"], "offers no record in 40 s"),
        (["paced", "--duration", "soon"], "--duration"),
        (["paced", "--service", "-1"], "--service"),
        (["paced", "--skew", "2"], "skew"),
        (["paced", "--duration", "0s"], "--duration"),
        (["paced", "--keys", "5"], "it takes --skew, --service"),
        (["key-count", "--keys", "3000000000"], "keys"),
        (["nexmark-q5", "--skew", "0.5"], "nexmark-q5 does not go by it"),
        (["nexmark-q55"], "did you mean 'nexmark-q5'?"),
        (["yahoo", "--redis", "127.0.0.1:1"], "no Redis answers at 127.0.0.1:1"),
        (["yahoo", "--redis", "127.0.0.1:99999"], "no Redis answers at 127.0.0.1:99999"),
    ],
)
def test_bad_usage_is_told_in_one_line(arguments, named, capsys):
    assert perform(["workload", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert named in said
    assert len(said.splitlines()) == 1


def test_every_workload_has_a_rate_that_can_be_offered():
    assert all(parse_rate(f"{entry.rate:g}", 40) and entry.rate > 0 for entry in WORKLOADS.values())


def test_a_package_that_is_missing_is_named_before_a_cluster_is_started():
    ask = Ask("constant:1", 1.0)
    WORKLOADS["nexmark-q6"].prepare(ask)
    with pytest.raises(BadInput, match="pip install nothing-like-it"):
        require_package("nowhere.like_it", "nothing-like-it", ask)


def test_options_reach_the_workloads_that_go_by_them():
    given = {"skew": 0.5, "keys": None, "service_seconds": 0.002, "redis": None}
    assert check_options(WORKLOADS["word-count"], given) == {"skew": 0.5, "service_seconds": 0.002}
    assert check_options(WORKLOADS["nexmark-q1"], dict.fromkeys(given)) == {}


def test_a_bare_number_is_a_constant_rate():
    assert parse_rate("250", 40) == "constant:250"
    assert find_mean_rate("steps:0=100,10=300", 20) == pytest.approx(200)
    with pytest.raises(BadInput):
        parse_rate("constant:x", 40)


def printed(figures):
    console = Console(width=120, record=True)
    console.print(render_result({"workload": "paced", "profile": "constant:1000", **figures}))
    return console.export_text()


def test_figures_say_whether_the_rate_is_sustained():
    figures = describe_outcome(OUTCOME, "constant:1000", cores=2)
    assert figures["records_per_second_per_core"] == 495.0
    assert (figures["sustained"], figures["p99_ms"], figures["run_longer"]) == (True, 1500.0, None)
    assert "by 12 to 12 records/s; 50 or less counts as no growth" in printed(figures)
    assert "NO: the backlog grows" in printed({**figures, "sustained": False})


def test_a_run_that_cannot_tell_says_how_long_one_would_have_to_be():
    figures = describe_outcome(replace(OUTCOME, batches=3, seconds=24.0), "constant:1000", cores=2)
    assert (figures["sustained"], figures["run_longer"]) == (None, "60s")
    text = printed(figures)
    assert "cannot tell" in text and "run longer: --duration 60s" in text


def test_a_run_without_figures_still_says_how_long_one_would_have_to_be():
    figures = describe_few(1, 90.0)
    assert (figures["sustained"], figures["run_longer"], figures["batches"]) == (None, "680s", 1)
    assert "only one batch ended in 90 s" in printed(figures)


@pytest.mark.parametrize(
    "command", [["demo"], ["workload", "paced"], ["bench", "overhead", "--quick"]], ids=" ".join
)
def test_a_spark_without_what_the_sources_need_is_told_in_one_line_before_a_cluster_starts(command):
    """Spark 4.1 has no such module."""
    without = "import sys; sys.modules['pyspark.sql.streaming.datasource'] = None; "
    called = f"{without}from penstock.cli import perform; sys.exit(perform({[*command, '--json']!r}))"
    ended = subprocess.run([sys.executable, "-c", called], capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "sources need Spark 4.2 or later" in orjson.loads(ended.stdout.splitlines()[-1])["error"]
