"""A first batch that never ends, for want of memory: seen by the rules on memory, and by nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.dataflow.metrics import RunningBatch
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, SizingFacts
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.manager.restarts import RecommendOnly
from penstock.decide.manager.settings import ManagerSettings
from penstock.decide.policy import Hold, Policy, Proposal, Resize
from penstock.decide.sage.metrics import GcClock, TouchedHeap, backlog_of, sample_of
from penstock.decide.sage.overrides import Said, parse_said
from penstock.decide.sage.policy import SagePolicy
from penstock.decide.sage.resizer import Limits
from penstock.decide.sage.settings import SageSettings
from penstock.decide.surroundings import Surroundings
from penstock.decide.verdict import Rejected, Waiting
from tests.decide.sized_application import CALM, CONF, GIB, WIDE
from tests.fakes import FixedPolicy, a_query, a_window

FULL = {"heap_used_bytes": 3.9 * GIB}


class Starting:
    """Two executors that report, and queries of which no batch has ended until `batches` is set.

    With `running` the first batch is seen while it runs.
    """

    def __init__(self, needs: Policy | None = None, limits: Limits = WIDE) -> None:
        self.now, self.said, self.batches, self.running = 0.0, Said(), False, False
        self.policy = SagePolicy(
            needs or Ds2Policy(Goals()),
            SageSettings(),
            limits=limits,
            around=Surroundings(said=lambda: self.said),
        )

    def window(self, facts: dict[str, float] | None = None, **use: float) -> ApplicationWindow:
        self.now += 10.0
        queries = (a_query(self.now - 10, backlog=10.0),) if self.batches else ()
        if self.running:
            first = RunningBatch(0, start=0.0, seconds=self.now, slots=2, stages=())
            queries = (dataclasses.replace(a_query(batch_seconds=()), running=first),)
        window = a_window(self.now, 2, queries=queries)
        busy = dataclasses.replace(CALM, **use)
        states = tuple(dataclasses.replace(state, use=busy) for state in window.executors)
        told = SizingFacts(CONF, **{"driver_heap_used_bytes": GIB, **(facts or {})})
        return dataclasses.replace(window, executors=states, sizing=told)

    def run(
        self, windows: int = 8, facts: dict[str, float] | None = None, **use: float
    ) -> Proposal | NotReady:
        for _ in range(windows):
            answer = self.policy.propose(self.window(facts, **use))
        return answer


@pytest.mark.parametrize(
    ("facts", "use", "rule", "key"),
    [
        ({}, FULL, "P1", "spark.executor.memory"),
        ({"out_of_memory_count": 1}, {}, "P1", "spark.executor.memory"),
        ({"memory_kill_count": 1}, {}, "P2", "spark.executor.memoryOverhead"),
        ({}, {"resident_bytes": 4.8 * GIB}, "P2", "spark.executor.memoryOverhead"),
        ({"driver_heap_used_bytes": 1.9 * GIB}, {}, "P1", "spark.driver.memory"),
    ],
)
def test_memory_that_is_short_in_the_first_batch_is_seen(facts, use, rule, key):
    answer = Starting().run(35, facts=facts, **use)
    assert isinstance(answer, Resize) and set(answer.settings) == {key}
    assert answer.reason.startswith(rule)
    assert answer.reason.endswith("no batch has ended yet, so memory alone is judged")


def test_a_few_samples_are_not_enough():
    starting = Starting()
    assert isinstance(starting.run(34, **FULL), NotReady), "a first batch may take five minutes"
    assert isinstance(starting.run(1, **FULL), Resize)


def test_a_failure_for_want_of_memory_does_not_wait():
    answer = Starting().run(4, facts={"out_of_memory_count": 1})
    assert isinstance(answer, Resize) and set(answer.settings) == {"spark.executor.memory"}


def test_executors_that_come_one_by_one_do_not_shorten_the_wait():
    starting = Starting()
    starting.policy.propose(dataclasses.replace(starting.window(**FULL), parallelism={EXECUTORS: 1}))
    assert isinstance(starting.run(8, **FULL), NotReady)


def test_a_busy_cpu_says_nothing_while_code_is_compiled():
    starting = Starting()
    assert isinstance(starting.run(36, cpu_cores=3.0), NotReady)
    starting = Starting(FixedPolicy(NotReady("no batch finished in the window", "a finished batch")))
    starting.batches = True
    answer = starting.run(11, cpu_cores=3.0)
    assert isinstance(answer, Resize) and answer.reason.startswith("P3"), "a minute after it, it does"


def test_a_first_batch_that_is_seen_while_it_runs_has_not_ended():
    starting = Starting(FixedPolicy(NotReady("its first batch runs", "its end")))
    starting.running = True
    assert isinstance(starting.run(36, cpu_cores=3.0), NotReady)
    answer = starting.run(35, **FULL)
    assert isinstance(answer, Resize)
    assert answer.reason.endswith("no batch has ended yet, so memory alone is judged")


def test_nothing_is_taken_away_before_a_batch_has_ended():
    unused = {"heap_committed_bytes": GIB, "heap_used_bytes": 0.5 * GIB, "resident_bytes": 1.4 * GIB}
    starting = Starting(FixedPolicy(NotReady("no query", "one")))
    assert isinstance(starting.run(40, **unused), NotReady)
    assert "size" not in starting.policy.learned(), "nor is such a size told to others"


def test_of_the_first_batch_nothing_counts_once_it_has_ended():
    """What was measured in it would let P1 decide at once."""
    starting = Starting(FixedPolicy(*[NotReady("no query", "one")] * 3, Hold("right")))
    starting.run(3, facts={"out_of_memory_count": 1})
    starting.batches = True
    assert isinstance(starting.run(1), NotReady)
    answer = starting.run(10)
    assert isinstance(answer, Hold) and answer.reason == "no rule asks for a change"


def test_a_later_query_without_batches_does_not_make_it_forget():
    needs = FixedPolicy(*[Hold("right")] * 10, NotReady("no query", "one"), Hold("right"))
    starting = Starting(needs)
    starting.batches = True
    starting.run(10, **FULL)
    starting.batches = False
    answer = starting.run(1, **FULL)
    assert isinstance(answer, Resize) and "no batch has ended yet" in answer.reason


def test_what_operators_say_counts_in_the_first_batch_too():
    starting = Starting()
    starting.said = parse_said({"pin": ["heap"]}, "here")
    assert isinstance(starting.run(35, **FULL), NotReady)
    starting.said = parse_said({"pin": ["heap=6g"], "by": "ops"}, "here")
    answer = starting.run(1)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "6144m"}
    assert answer.reason.startswith("set by ops")


def test_what_cannot_be_met_is_said():
    starting = Starting(limits=dataclasses.replace(WIDE, quota_bytes=10 * GIB))
    answer = starting.run(35, **FULL)
    assert isinstance(answer, Hold) and "P1 cannot be met" in answer.reason


def test_without_sources_the_backlog_is_unknown_and_not_zero():
    sample = sample_of(a_window(queries=()), GcClock(), TouchedHeap(), 2.0)
    assert sample["backlog_records"] != sample["backlog_records"]
    assert sample["offered_per_second"] != sample["offered_per_second"]
    assert backlog_of(a_window()) == 500.0


def test_the_managers_warm_up_is_for_rates_and_begins_with_the_first_batch():
    starting, manager = (
        Starting(),
        ScalingManager(ManagerSettings(warm_up_intervals=3), restarts=RecommendOnly()),
    )
    answer = starting.run(35, **FULL)
    verdict = manager.judge(starting.now, starting.window(**FULL), answer)
    assert isinstance(verdict, Rejected) and verdict.guardrail == "recommend-only"
    starting.batches = True
    verdict = manager.judge(starting.now, starting.window(), Hold("right"))
    assert isinstance(verdict, Waiting) and "warming up" in verdict.reason
