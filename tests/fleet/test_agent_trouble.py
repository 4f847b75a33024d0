"""An agent in trouble: no answer, no journal, an hour away, hosts that cannot give what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import Hold, Resize, Scale
from penstock.decide.sage.resizer import Limits
from penstock.decide.sage.settings import SageSettings
from penstock.errors import JournalUnavailable
from penstock.fleet.agent import MOST_UNSENT
from penstock.fleet.decision import FleetDecision
from penstock.fleet.records import read_lines
from penstock.fleet.round import RoundResult, play_round, tabulate_decisions
from penstock.fleet.state import FleetState, empty_state, from_bytes, to_bytes
from penstock.journal.store import Journal
from tests.fakes import a_query, a_window
from tests.fleet.test_agent import GIB, Post, an_agent

SETTINGS = SageSettings()
WIDE = Limits(16, 64 * GIB, 1000, 1000 * GIB)
LARGER = FleetDecision(5000, 600.0, "P1", settings={"spark.executor.memory": "9g"})
MORE = FleetDecision(5000, 600.0, "P4", parallelism=9)


def test_windows_get_through_while_no_decision_can_be_had(journal: Journal):
    post = Post()
    agent, post.silent = an_agent(post, journal), True
    answer = agent.propose(a_window(10.0))
    assert isinstance(answer, NotReady) and "no answer" in answer.reason
    assert [record["end"] for record in post.sent] == [10.0]
    post.away = True
    agent.propose(a_window(20.0))
    post.away = post.silent = False
    agent.propose(a_window(30.0))
    assert [record["end"] for record in post.sent] == [10.0, 20.0, 30.0], "none was lost"


class Away:
    """A journal whose server is away when it is told to be."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.away = journal, False

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        self._check()
        self.journal.remember(now, owner, kind, key, body)

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        self._check()
        return self.journal.recall(owner, kind)

    def _check(self) -> None:
        if self.away:
            raise JournalUnavailable("the server is away")


def test_without_its_journal_it_reports_on_and_begins_nothing(journal: Journal):
    """What it does must be on the disk first, or it would be done again after a restart."""
    post, memory = Post(), Away(journal)
    agent, memory.away = an_agent(post, memory), True
    assert isinstance(agent.propose(a_window(10.0)), NotReady)
    memory.away = False
    agent.propose(a_window(20.0))
    memory.away = True
    post.waiting = [FleetDecision(4000, 8.0, "late", parallelism=3), LARGER]
    assert isinstance(agent.propose(a_window(30.0)), NotReady)
    memory.away = False
    answer = agent.propose(a_window(40.0))
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "9g"}
    assert [record["end"] for record in post.sent] == [10.0, 20.0, 30.0, 40.0]
    assert post.sent[-1]["acknowledged"] == 5000


def test_new_settings_that_the_journal_kept_waiting_for_too_long_are_out_of_date(journal: Journal):
    post, memory = Post(), Away(journal)
    agent = an_agent(post, memory)
    agent.propose(a_window(10.0))
    memory.away, post.waiting = True, [LARGER]
    for end in (20.0, 600.0, 1200.0):
        assert isinstance(agent.propose(a_window(end)), NotReady)
    memory.away = False
    answer = agent.propose(a_window(3600.0))
    assert isinstance(answer, Hold) and "out of date" in answer.reason
    assert post.sent[-1]["acknowledged"] == LARGER.decision_id


def judged(state: FleetState, *records: Mapping[str, Any]) -> RoundResult:
    read = read_lines([orjson.dumps(record) for record in records], ["agent"] * len(records))
    assert read.dead.num_rows == 0
    return play_round(from_bytes(to_bytes(state)), read.windows, SETTINGS)


def decided(result: RoundResult) -> pa.Table:
    return tabulate_decisions(result, SETTINGS)


def test_an_agent_that_was_offline_for_an_hour(journal: Journal):
    """What was decided meanwhile is out of date; the windows of the gap are few, and nothing is believed
    across it."""
    post, state = Post(), empty_state()
    agent, decisions = an_agent(post, journal), []

    def window(number: int, backlog: float, executors: int = 2) -> Any:
        return a_window(10.0 * number, executors, queries=(a_query(backlog=backlog),))

    for number in range(1, 5):
        agent.propose(window(number, 1000.0 * number))
        result = judged(state, post.sent[-1])
        state, decisions = result.state, decisions + decided(result).to_pylist()
    assert [row["decision_id"] for row in decisions] == [40_000]
    # its machine has no network for an hour: the decision is not heard of, and no window gets through
    post.away = post.silent = True
    for number in range(5, 365):
        assert isinstance(agent.propose(window(number, 1000.0)), NotReady)
    post.away = post.silent = False
    post.waiting = [FleetDecision.from_row(row, 3650.0) for row in decisions]
    sent = len(post.sent)
    assert isinstance(agent.propose(window(365, 1000.0)), Hold), "it came after its time"
    caught_up = post.sent[sent:]
    assert len(caught_up) == MOST_UNSENT and caught_up[-1]["acknowledged"] == 40_000
    result = judged(state, *caught_up)
    assert decided(result).num_rows == 0 and result.state.in_flight.tolist() == [0]
    assert judged(result.state, *caught_up).ignored == MOST_UNSENT, "what comes twice changes nothing"
    state = result.state
    for number in range(366, 371):
        agent.propose(window(number, 1000.0 * number))
        result = judged(state, post.sent[-1])
        state = result.state
        if decided(result).num_rows:
            break
    assert number == 369, "four samples since the answer, as after every action"


def test_what_hosts_or_quotas_do_not_give_is_cut_down_and_said(journal: Journal):
    post = Post()
    agent = an_agent(post, journal, limits=Limits(16, 8 * GIB, 1000, 1000 * GIB))
    post.waiting = [LARGER]
    answer = agent.propose(a_window(10.0))
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "7168m"}
    assert "10 GiB for one executor exceed what it may have: 8 GiB instead" in answer.reason
    agent = an_agent(post, journal, limits=Limits(16, 64 * GIB, 6, 1000 * GIB))
    post.waiting = [FleetDecision(6000, 600.0, "P4", parallelism=9)]
    answer = agent.propose(a_window(20.0))
    assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 3}
    assert "9 executors are needed and 3 fit: the quota is 6 cores" in answer.reason
    answer = agent.propose(a_window(30.0, executors=3))
    assert isinstance(answer, Hold) and "cannot be met" in answer.reason, "no more can be had"
    agent.propose(a_window(610.0, executors=3))
    assert post.sent[-1]["acknowledged"] == 6000


def test_what_cannot_be_met_is_said_until_it_is_out_of_date(journal: Journal):
    post = Post()
    agent = an_agent(post, journal, limits=Limits(16, 64 * GIB, 4, 1000 * GIB))
    post.waiting = [MORE]
    answer = agent.propose(a_window(10.0))
    assert isinstance(answer, Hold) and "cannot be met" in answer.reason and "4 cores" in answer.reason
    assert post.sent[-1]["acknowledged"] == 0
    assert isinstance(agent.propose(a_window(610.0)), Hold)
    assert post.sent[-1]["acknowledged"] == 5000


def test_what_fits_is_proposed_as_it_is(journal: Journal):
    for decision, kind in ((LARGER, Resize), (FleetDecision(6000, 600.0, "P4", parallelism=9), Scale)):
        post = Post()
        post.waiting = [decision]
        answer = an_agent(post, journal, limits=WIDE).propose(a_window(10.0))
        assert isinstance(answer, kind) and answer.reason == decision.reason


def test_nothing_is_reported_of_a_first_batch(journal: Journal):
    """The controller would judge it like any other window, and might take memory away in it."""
    post = Post()
    assert isinstance(an_agent(post, journal).propose(a_window(10.0, queries=())), NotReady)
    assert not post.sent
