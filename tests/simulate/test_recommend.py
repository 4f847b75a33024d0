"""Recommendations: by hand-made demands, over a journal of the real loop, and from too little."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from penstock.cli import perform
from penstock.dataflow.window import EXECUTORS
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals
from penstock.errors import BadInput
from penstock.journal.store import open_journal
from penstock.plugins.windows import on_operators
from penstock.settings.model import Settings
from penstock.simulate.recommend import (
    AS_RUN,
    Choice,
    Recommendation,
    WindowNeed,
    _find_demand,
    _Judge,
    recommend,
)
from penstock.simulate.replay import Recording, read_recording
from penstock.view.recommendation import render_recommendation
from tests.simulate.test_batches import spark
from tests.simulate.test_replay import record

SETTINGS = {
    "policy_interval": 60,
    "warm_up_intervals": 1,
    "batch_period": "10s",
    "utilisation": 0.5,
    "utilisation_low": 0.4,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A journal of seventy minutes in which twice the size was held that is needed."""
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    load = "sine:mean=300,amplitude=150,period=4200"
    record(path, spark(load, duration=4200, noise=0.02, settings=SETTINGS))
    return path


def demands(*needs):
    return [WindowNeed(60.0 * (n + 1), 60.0, 100.0, {EXECUTORS: need}) for n, need in enumerate(needs)]


def test_sizes_are_judged_by_what_windows_needed():
    judge = _Judge(Recording("app", (), (), 0), demands(2.0, 4.0, 4.0, 2.0), usual_latency=3.0)
    enough = judge._measure([{EXECUTORS: 4}] * 4, delay=0.0)
    assert (enough["short_ratio"], enough["p99_latency_seconds"]) == (0.0, 3.0)
    assert enough["hours"] == pytest.approx(4 * 4 / 60)
    # two of four for one window: 50 records/s short for 60 s leave 3,000, which 50/s take 60 s for
    sizes = [{EXECUTORS: size} for size in (2, 2, 8, 8)]
    late = judge._measure(sizes, delay=0.0)
    assert late["short_ratio"] == 0.25 and late["p99_latency_seconds"] == pytest.approx(63.0, rel=0.05)
    assert (late["least"], late["most"]) == (2, 8)
    # a growth that takes a window leaves the next one short, too
    assert judge._measure(sizes, delay=60.0)["short_ratio"] == 0.5


def test_operators_of_their_own_have_a_need_each():
    judge = Ds2Policy(Goals(utilisation=1.0, catch_up=604800.0))
    found = _find_demand(judge, on_operators(75.0, held=3))
    # 75 records/s over 40 and 30 of one instance; the source is not sized
    assert found is not None and found.need == pytest.approx({"parse": 1.875, "count": 2.5})


def test_the_recommended_settings_are_the_cheapest_that_are_enough(place, capsys, tmp_path):
    config = tmp_path / "penstock.yaml"
    config.write_text("policy_interval: 60s\nwarm_up_intervals: 1\nutilisation: 0.5\nutilisation_low: 0.4\n")
    page = tmp_path / "recommended.html"
    given = ["recommend", str(place), "--config", str(config)]
    assert perform([*given, "--html", str(page), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    best, choices = found["best"], found["choices"]
    assert best == choices[0] and best["policy"] == "ds2" and len(choices) > 3
    assert found["allowed_short_ratio"] == max(0.001, found["held"]["short_ratio"])
    enough = [one for one in choices if one["short_ratio"] <= found["allowed_short_ratio"]]
    assert enough and best["hours"] == min(one["hours"] for one in enough) < found["held"]["hours"]
    assert 1 <= best["min_executors"] <= best["max_executors"]
    assert any("seen at another size" in limit for limit in found["limits"])
    told = page.read_text()
    assert "What a replay cannot know" in told and f"policy: {best['policy']}" in told
    assert 'src="http' not in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--last", "10min"], "too little history for a recommendation: 10 windows over"),
        (["--last", "soon"], "--last"),
        (["--policy", "ds3"], "unknown policy 'ds3'"),
        (["--app", "nobody"], "has no observations of 'nobody'"),
    ],
)
def test_bad_usage_and_too_little_history_are_one_line(place, capsys, arguments, says):
    assert perform(["recommend", str(place), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_windows_that_do_not_tell_what_they_needed_are_no_ground(place):
    with closing(open_journal(place, create=False)) as journal:
        recording = read_recording(journal.observations(), journal.actions())
    silent = [
        replace(window, queries=tuple(replace(one, batches=()) for one in window.queries))
        for window in recording.windows
    ]
    with pytest.raises(BadInput, match="tell what their load needed"):
        recommend(replace(recording, windows=tuple(silent)), Settings())


def test_the_terminal_shows_the_best_all_others_and_the_limits():
    judge = _Judge(Recording("app", (), (), 0), demands(2.0, 4.0), usual_latency=3.0)
    figures = judge._measure([{EXECUTORS: 4}] * 2, delay=0.0)
    best = Choice("ds2", {"utilisation": 0.7}, steps=1, unobserved_ratio=0.5, **figures)
    held = Choice(AS_RUN, {}, steps=2, unobserved_ratio=0.0, **figures)
    found = Recommendation("app", 0.0, 3600.0, 60, held, (best,), ("a limit",), 0.001)
    console = Console(width=130, record=True, file=StringIO())
    console.print(render_recommendation(found))
    shown = console.export_text()
    assert shown.startswith("best: policy: ds2, utilisation: 0.7, min_executors: 4, max_executors: 4")
    assert "as it was run" in shown and "100%" in shown and "- a limit" in shown
