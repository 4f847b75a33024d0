"""Sage inside the loop: growth with the backlog alone, one step down, and what waits for a restart."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.manager.restarts import (
    RecommendOnly,
    RestartHistory,
    RestartJudge,
    RestartRules,
    judge_restart,
)
from penstock.decide.policy import Hold, Proposal, Resize, Scale
from penstock.decide.sage.overrides import parse_said
from penstock.decide.sage.policy import SagePolicy
from penstock.decide.sage.resizer import Limits
from penstock.decide.sage.services import Correlation
from penstock.decide.sage.settings import SageSettings
from penstock.decide.verdict import Accepted, Rejected
from tests.decide.sized_application import GIB, Application
from tests.fakes import FixedPolicy, a_query, a_scale, a_window


def run(
    policy: SagePolicy, backlogs: list[float], executors: int = 4, since: int = 0
) -> list[Proposal | NotReady]:
    """One window in ten seconds for each backlog."""
    return [
        policy.propose(
            a_window(10.0 * (since + n), executors, queries=(a_query(10.0 * n - 10, backlog=backlog),))
        )
        for n, backlog in enumerate(backlogs, start=1)
    ]


def sage(*needs: int, service: Correlation | None = None) -> SagePolicy:
    answers = [a_scale(need) if need != 4 else Hold("right") for need in needs]
    return SagePolicy(FixedPolicy(*answers), SageSettings(), lambda window: service)


def test_it_grows_to_what_ds2_asks_for_while_the_backlog_does():
    answers = run(sage(7), [1000.0 * n for n in range(1, 7)])
    assert all(isinstance(answer, NotReady) for answer in answers[:3])
    assert all(isinstance(a, Scale) and a.parallelism == {EXECUTORS: 7} for a in answers[3:])
    assert "the backlog grew" in answers[-1].reason and "executors 4 → 7" in answers[-1].reason


def test_it_does_not_grow_for_a_backlog_that_falls():
    answers = run(sage(7), [1000.0, 2000.0, 3000.0, 2500.0, 2600.0])
    assert not any(isinstance(answer, Scale) for answer in answers)


def test_growth_that_follows_a_service_is_held_and_the_service_is_named():
    slow = Correlation("profiles", "latency_seconds", 2, 0.9)
    answer = run(sage(7, service=slow), [1000.0 * n for n in range(1, 7)])[-1]
    assert isinstance(answer, Hold) and answer.reason == (
        "P4 was held back: the backlog follows the latency of profiles (correlation 0.90, 2 samples later), "
        "a remote service that more parallelism does not speed up"
    )


def test_a_service_that_the_backlog_hardly_follows_holds_nothing():
    slow = Correlation("profiles", "latency_seconds", 0, 0.5)
    assert isinstance(run(sage(7, service=slow), [1000.0 * n for n in range(1, 7)])[-1], Scale)


def test_it_shrinks_once_to_the_largest_need_of_the_long_window():
    needs = [2] * 10 + [3] + [2] * 30
    answers = run(sage(*needs), [10.0] * 25)
    shrunk = [answer for answer in answers if isinstance(answer, Scale)]
    assert shrunk and all(answer.parallelism == {EXECUTORS: 3} for answer in shrunk)
    assert not any(isinstance(answer, Scale) for answer in answers[:19]), "twenty samples are awaited"


def test_after_a_change_the_samples_before_it_count_for_nothing():
    policy = sage(2)
    assert isinstance(run(policy, [10.0] * 25)[-1], Scale)
    answers = run(policy, [10.0] * 10, executors=3, since=25)
    assert not any(isinstance(answer, Scale) for answer in answers)


def test_gc_pressure_forbids_to_shrink():
    policy, answers = sage(2), []
    for number in range(1, 30):
        window = a_window(10.0 * number, 4, queries=(a_query(backlog=10.0),))
        states = tuple(dataclasses.replace(e, gc_seconds=3.0 * number) for e in window.executors)
        answers.append(policy.propose(dataclasses.replace(window, executors=states)))
    assert isinstance(answers[-1], Hold) and "P1 was held back" in answers[-1].reason


def test_a_clock_that_goes_back_begins_anew():
    policy = sage(7)
    run(policy, [1000.0 * n for n in range(1, 7)], since=100)
    assert isinstance(run(policy, [1000.0])[-1], NotReady)


class Restarting:
    """Allows what the rules on restarts allow."""

    def judge(self, now: float, resize: Resize) -> Accepted | Rejected:
        return judge_restart(now, resize, RestartRules(), RestartHistory())


@pytest.mark.parametrize(
    ("restarts", "waits"),
    [(RecommendOnly(), False), (Restarting(), True), (None, True)],
    ids=["recommended", "allowed", "unknown"],
)
def test_growth_waits_for_new_settings_only_where_they_will_come(restarts: RestartJudge | None, waits: bool):
    application = Application(needed=9, restarts=restarts)
    application.backlog_growth = 1000.0
    answer = application.run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize if waits else Scale)
    assert "P1 (heap scale-up)" in answer.reason, "what is recommended is said in any case"
    assert waits or answer.reason.startswith("P4 (parallelism scale-up)")


def test_what_is_recommended_is_proposed_where_nothing_has_to_grow():
    application = Application(needed=9, restarts=RecommendOnly())
    answer = application.run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "6144m"}


def test_growth_does_not_wait_for_a_value_that_an_operator_set_and_nobody_may_restart_for():
    application = Application(needed=9, restarts=RecommendOnly())
    application.said = parse_said({"pin": ["heap=8g"], "by": "ops"}, "a test")
    assert isinstance(application.run(), Resize)
    application.backlog_growth = 1000.0
    answer = application.run()
    assert isinstance(answer, Scale) and "set by ops" in answer.reason


def test_growth_that_cannot_be_met_hides_no_recommendation():
    limits = Limits(16, 64 * GIB, 1000, 1000 * GIB, most_executors=2)
    application = Application(limits=limits, needed=9, restarts=RecommendOnly())
    application.backlog_growth = 1000.0
    assert isinstance(application.run(heap_used_bytes=3.9 * GIB), Resize)


def test_a_rule_that_is_forced_is_proposed_though_more_is_needed():
    application = Application(needed=9, restarts=RecommendOnly())
    application.backlog_growth = 1000.0
    application.run(3)
    application.said = parse_said({"force": {"rule": "P1", "id": "ticket"}, "by": "ops"}, "a test")
    assert isinstance(application.run(1), Resize) and isinstance(application.run(4), Scale)
