"""Sage inside the loop: growth with the backlog alone, one step down, nothing while a service is slow."""

from __future__ import annotations

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import Hold, Proposal, Scale
from penstock.decide.sage_policy import SagePolicy
from penstock.decide.sage_services import Correlation
from penstock.decide.sage_settings import SageSettings
from tests.fakes import FixedPolicy, a_query, a_scale, a_window


def run(
    policy: SagePolicy, backlogs: list[float], executors: int = 4, since: int = 0
) -> list[Proposal | NotReady]:
    """One window in ten seconds for each backlog."""
    return [
        policy.propose(
            a_window(
                10.0 * (since + n), executors, queries=(a_query(10.0 * n - 10, 10.0 * n, backlog=backlog),)
            )
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
    import dataclasses

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
