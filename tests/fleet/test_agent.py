"""Agent and controller: a message lost, doubled or late, either side away for a while."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ExecutorUse, SizingFacts
from penstock.decide.policy import Hold, Resize, Scale
from penstock.decide.sage.resizer import Limits
from penstock.decide.sage.services import ServiceReading, ServiceTest, ServiceWatch
from penstock.decide.sage.settings import SageSettings
from penstock.decide.sage.sizes import held_from, size_in_bytes
from penstock.errors import ActionFailed, BadInput
from penstock.fleet.agent import MOST_UNSENT, FleetPolicy
from penstock.fleet.decision import FleetDecision
from penstock.fleet.places import FleetDirectory
from penstock.fleet.records import read_lines
from penstock.fleet.reporting import DirectoryTransport, connect_to_fleet
from penstock.fleet.round import play_round, tabulate_decisions
from penstock.fleet.state import empty_state, from_bytes, to_bytes
from penstock.journal.store import Journal
from penstock.observe.services.board import ServiceBoard
from penstock.runtime.surroundings import report_to_fleet
from penstock.settings.model import Settings
from tests.fakes import FixedPolicy, a_query, a_scale, a_window

GIB = 1024.0**3
CONF = {"spark.executor.memory": "6g", "spark.executor.memoryOverhead": "1024"}


class Post:
    """A transport whose messages the test hands over."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.waiting: list[FleetDecision] = []
        self.away = self.silent = False
        self.refusal = ""

    def publish(self, record: Mapping[str, Any]) -> None:
        if self.away:
            raise ActionFailed("nobody takes it")
        self.sent.append(record)

    def decisions(self, application: str) -> Sequence[FleetDecision]:
        if self.silent:
            raise ActionFailed("no answer")
        found, self.waiting = self.waiting, []
        return found


def an_agent(post: Any, journal: Any, needed: int = 4, limits: Limits | None = None) -> FleetPolicy:
    allowed = None if limits is None else lambda window: limits
    return FleetPolicy("words", post, journal, FixedPolicy(a_scale(needed)), CONF, limits=allowed)


def test_windows_are_published_with_what_is_known(journal: Journal):
    post = Post()
    assert isinstance(an_agent(post, journal).propose(a_window(10.0)), Hold)
    read = read_lines([orjson.dumps(post.sent[0])], ["agent"])
    assert read.dead.num_rows == 0
    (row,) = read.windows.to_pylist()
    assert (row["application"], row["end"], row["acknowledged"]) == ("words", 10.0, 0)
    assert (row["held_parallelism"], row["held_heap_bytes"], row["held_overhead_bytes"]) == (2, 6 * GIB, GIB)
    assert (row["needed_parallelism"], row["backlog_records"]) == (4.0, 500.0)
    assert math.isnan(row["heap_used_bytes"]), "Spark tells the peak alone, which is no heap use"


@pytest.mark.parametrize(("needed", "told"), [(1, 3.0), (3, 3.0), (5, 5.0)])
def test_fewer_executors_than_are_kept_are_never_needed(
    journal: Journal, tmp_path: Path, needed: int, told: float
):
    """The controller would decide on them again and again, and on nothing else while that is in flight."""
    settings = Settings(min_executors=3)
    agent = report_to_fleet(FixedPolicy(a_scale(needed)), str(tmp_path), settings, journal, "words", {})
    agent.propose(a_window(10.0))
    (sent,) = (tmp_path / "windows").iterdir()
    assert orjson.loads(sent.read_bytes())["needed_parallelism"] == told


def test_a_decision_is_proposed_until_it_is_so_and_then_acknowledged(journal: Journal):
    post = Post()
    agent = an_agent(post, journal)
    post.waiting = [FleetDecision(5000, 600.0, "P4", parallelism=4)]
    for now in (10.0, 20.0):
        answer = agent.propose(a_window(now))
        assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 4}
    assert post.sent[-1]["acknowledged"] == 0
    assert isinstance(agent.propose(a_window(30.0, executors=4)), Hold)
    assert post.sent[-1]["acknowledged"] == 5000


def test_a_decision_that_comes_twice_is_done_once(journal: Journal):
    post = Post()
    agent = an_agent(post, journal)
    decision = FleetDecision(5000, 600.0, "P4", parallelism=4)
    post.waiting = [decision, decision]
    agent.propose(a_window(10.0))
    agent.propose(a_window(20.0, executors=4))
    post.waiting = [decision]
    assert isinstance(agent.propose(a_window(30.0)), Hold)


def test_a_decision_is_not_begun_again_after_a_restart(journal: Journal):
    post, decision = Post(), FleetDecision(5000, 600.0, "P1", settings={"spark.executor.memory": "9g"})
    post.waiting = [decision]
    assert isinstance(an_agent(post, journal).propose(a_window(10.0)), Resize)
    post.waiting = [decision]
    assert isinstance(an_agent(post, journal).propose(a_window(20.0)), Hold)


def test_a_late_decision_is_not_done_but_acknowledged(journal: Journal):
    post = Post()
    post.waiting = [FleetDecision(5000, 8.0, "P4", parallelism=4)]
    assert isinstance(an_agent(post, journal).propose(a_window(10.0)), Hold)
    assert post.sent[-1]["acknowledged"] == 5000


def test_what_guardrails_refuse_is_given_up_in_the_end(journal: Journal):
    post = Post()
    agent = an_agent(post, journal)
    post.waiting = [FleetDecision(5000, 25.0, "P4", parallelism=4)]
    assert [type(agent.propose(a_window(now))) for now in (10.0, 20.0, 30.0)] == [Scale, Scale, Hold]


def test_of_several_decisions_the_newest_counts(journal: Journal):
    post = Post()
    post.waiting = [FleetDecision(n, 600.0, "P4", parallelism=n // 1000) for n in (7000, 5000)]
    answer = an_agent(post, journal).propose(a_window(10.0))
    assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 7}


def test_windows_wait_while_the_controller_is_away_and_the_oldest_go_first(journal: Journal):
    post = Post()
    agent, post.away = an_agent(post, journal), True
    for number in range(1, MOST_UNSENT + 20):
        assert isinstance(agent.propose(a_window(10.0 * number)), NotReady)
    post.away = False
    agent.propose(a_window(10_000.0))
    assert len(post.sent) == MOST_UNSENT
    assert post.sent[-1]["end"] == 10_000.0 and post.sent[0]["end"] == 210.0


def test_agent_and_controller_meet_in_a_directory(journal: Journal, tmp_path: Path):
    """A backlog that grows leads to a decision, its proposal, and its end; a killed controller goes on."""
    directory, settings = FleetDirectory(tmp_path), SageSettings()
    agent = an_agent(DirectoryTransport(tmp_path), journal)
    stored, answers = to_bytes(empty_state()), []
    for number in range(1, 10):
        held = 4 if any(isinstance(answer, Scale) for answer in answers) else 2
        queries = (a_query(backlog=1000.0 * number),)
        answers.append(agent.propose(a_window(10.0 * number, executors=held, queries=queries)))
        for batch in (number, number):  # the second is what a restarted controller would do again
            files = sorted((tmp_path / "windows").glob("*.jsonl"))
            lines = [path.read_bytes() for path in files]
            result = play_round(
                from_bytes(stored), read_lines(lines, [str(p) for p in files]).windows, settings
            )
            directory.write_decisions(batch, tabulate_decisions(result, settings))
        stored = to_bytes(result.state)
    kinds = [type(answer) for answer in answers]
    assert kinds == [Hold] * 4 + [Scale] + [Hold] * 4
    assert [row["decision_id"] for row in directory.decisions()] == [40_000]
    assert from_bytes(stored).in_flight.tolist() == [0], "the controller has seen that it is done"


@pytest.mark.parametrize(
    ("text", "size"), [("1g", GIB), ("512", 512 * 1024**2), ("1.5 GB", 1.5 * GIB), ("10k", 10240)]
)
def test_sizes_as_spark_writes_them(text: str, size: float):
    assert size_in_bytes(text, "key") == size


def test_a_size_that_is_none_names_its_key():
    with pytest.raises(BadInput, match=r"spark\.executor\.memory"):
        held_from({"spark.executor.memory": "much"}, a_window())
    assert held_from({"spark.executor.memory": "8g"}, a_window()).overhead_bytes == pytest.approx(0.8 * GIB)


def test_a_backlog_that_follows_a_service_is_told_to_the_controller(journal: Journal):
    """The service is slow in the second half, and the backlog grows in it."""
    board, post = ServiceBoard(), Post()
    agent = FleetPolicy("words", post, journal, FixedPolicy(a_scale(4)), CONF, ServiceWatch(board.newest))
    backlog = 0.0
    for number in range(1, 21):
        latency = 0.1 if number <= 10 else 2.0
        backlog += 1000.0 * latency
        board.publish(ServiceReading("profiles", 10.0 * number - 1, latency))
        agent.propose(a_window(10.0 * number, queries=(a_query(backlog=backlog),)))
    assert "service_correlation" not in post.sent[0], "one sample says nothing"
    assert post.sent[-1]["service_correlation"] > 0.9
    for number in range(21, 25):
        agent.propose(a_window(10.0 * number, queries=(a_query(backlog=backlog + 5000.0 * number),)))
    assert "service_correlation" not in post.sent[-1], "a service that fell silent explains nothing"
    assert "service_correlation" in post.sent[-2], "for as long as the backlog may follow it"
    assert ServiceWatch(board.newest).look(a_window(10_000.0)) is None


def test_a_backlog_may_follow_a_service_much_later_if_the_settings_say_so():
    board, backlog, lag = ServiceBoard(), 0.0, 30
    watch = ServiceWatch(board.newest, ServiceTest((lag,)))
    latencies = [1.0 + number % 7 for number in range(2 * lag)]
    for number, latency in enumerate(latencies):
        backlog += 1000.0 * latencies[number - lag] if number >= lag else 0.0
        end = 10.0 * (number + 1)
        board.publish(ServiceReading("profiles", end - 1, latency))
        found = watch.look(a_window(end, queries=(a_query(backlog=backlog),)))
    assert found is not None and found.lag == lag and found.coefficient > 0.99


def test_attaching_with_report_to_makes_an_agent(journal: Journal, tmp_path: Path):
    transport = connect_to_fleet(str(tmp_path), "words")
    policy = FleetPolicy("words", transport, journal, FixedPolicy(a_scale(3)), CONF)
    assert policy.name == "fleet" and isinstance(policy.propose(a_window()), Hold)
    assert len(list((tmp_path / "windows").glob("*-words-*.jsonl"))) == 1
    with pytest.raises(BadInput, match="kafka://HOST"):
        connect_to_fleet("http://broker/windows", "words")


FULL = ExecutorUse(5.85 * GIB, 6 * GIB, 6.4 * GIB, 0.5, 0.1, 1.0, 0.0)


def a_sized_window(end: float):
    window = a_window(end)
    states = tuple(replace(executor, use=FULL) for executor in window.executors)
    return replace(window, executors=states, sizing=SizingFacts(CONF, GIB))


def test_a_full_heap_is_told_decided_on_and_proposed_with_the_value_before(journal: Journal):
    post = Post()
    agent = FleetPolicy("words", post, journal, FixedPolicy(Hold("right")), CONF)
    for number in range(1, 6):
        agent.propose(a_sized_window(10.0 * number))
    lines = [orjson.dumps(record) for record in post.sent]
    read = read_lines(lines, ["agent"] * len(lines))
    assert read.dead.num_rows == 0
    result = play_round(empty_state(), read.windows, SageSettings())
    (row,) = tabulate_decisions(result, SageSettings()).to_pylist()
    assert (row["application"], row["rule"]) == ("words", "P1")
    post.waiting = [FleetDecision.from_row(row, 60.0)]
    answer = agent.propose(a_sized_window(60.0))
    assert isinstance(answer, Resize)
    assert (answer.settings, answer.before) == (
        {"spark.executor.memory": "9216m"},
        {"spark.executor.memory": "6g"},
    )


def test_what_executors_report_in_the_first_minute_is_not_told(journal: Journal):
    post = Post()
    agent = FleetPolicy("words", post, journal, FixedPolicy(Hold("right")), CONF, warm_up_seconds=60.0)
    for number in range(1, 9):
        agent.propose(a_sized_window(10.0 * number))
    told = ["heap_used_bytes" in record for record in post.sent]
    assert told == [False] * 6 + [True] * 2
    assert all("needed_parallelism" in record for record in post.sent)
