"""An agent whose executors report what they use tells the controller, which then sizes memory, too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import orjson

from penstock.dataflow.window import ApplicationWindow, ExecutorUse, SizingFacts
from penstock.decide.held_size import held_from
from penstock.decide.policy import Hold, Resize
from penstock.decide.sage_metrics import HeldSize
from penstock.fleet.agent import FleetDecision, FleetPolicy
from penstock.fleet.records import read_lines
from penstock.fleet.results import decisions_of
from penstock.fleet.round import FleetSettings, play
from penstock.fleet.state import empty_state
from penstock.journal.store import open_journal
from tests.fakes import FixedPolicy, a_window
from tests.fleet.test_agent import Post

GIB = 1024.0**3
CONF = {"spark.executor.memory": "4g", "spark.executor.memoryOverhead": "1g"}
USE = ExecutorUse(3.9 * GIB, 4 * GIB, 4.4 * GIB, 0.5, 0.1, 1.0, 0.0)


def a_size(window: ApplicationWindow, settings: Mapping[str, str]) -> HeldSize:
    return held_from({**CONF, **settings}, window)


def a_sized_window(end: float):
    window = a_window(end)
    states = tuple(replace(executor, use=USE) for executor in window.executors)
    return replace(window, executors=states, sizing=SizingFacts(CONF, GIB))


def test_a_full_heap_is_told_decided_on_and_proposed_with_the_value_before(tmp_path: Path):
    post = Post()
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        agent = FleetPolicy("words", post, journal, FixedPolicy(Hold("right")), a_size)
        for number in range(1, 6):
            agent.propose(a_sized_window(10.0 * number))
        lines = [orjson.dumps(record) for record in post.sent]
        read = read_lines(lines, ["agent"] * len(lines))
        assert read.dead.num_rows == 0
        result = play(empty_state(), read.windows, FleetSettings())
        (row,) = decisions_of(result, FleetSettings()).to_pylist()
        assert (row["application"], row["rule"]) == ("words", "P1")
        post.waiting = [FleetDecision.from_row({**row, "expires_at": 1e9})]
        answer = agent.propose(a_sized_window(60.0))
    assert isinstance(answer, Resize)
    assert (answer.settings, answer.before) == (
        {"spark.executor.memory": "6144m"},
        {"spark.executor.memory": "4g"},
    )


def test_what_executors_report_in_the_first_minute_is_not_told(tmp_path: Path):
    post = Post()
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        agent = FleetPolicy("words", post, journal, FixedPolicy(Hold("right")), a_size, warm_up_seconds=60.0)
        for number in range(1, 9):
            agent.propose(a_sized_window(10.0 * number))
    told = ["heap_used_bytes" in record for record in post.sent]
    assert told == [False] * 6 + [True] * 2
    assert all("needed_parallelism" in record for record in post.sent)
