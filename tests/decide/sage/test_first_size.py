"""The first size of a new application: its own first minutes, similar ones, one restart for all of it."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.dataflow.window import ExecutorUse, SizingFacts
from penstock.decide.policy import Hold, Resize
from penstock.decide.sage.first_size import KnownSize, find_most_similar, read_sizes
from penstock.decide.sage.overrides import Said, parse_said
from penstock.decide.sage.policy import SagePolicy
from penstock.decide.sage.resizer import Limits
from penstock.decide.sage.settings import SageSettings
from penstock.decide.surroundings import Surroundings
from tests.fakes import FixedPolicy, a_query, a_window

GIB, MIB = 1024.0**3, 1024.0**2
LARGE = {"spark.executor.memory": "8g", "spark.executor.memoryOverhead": "4g", "spark.task.cpus": "2"}
USE = ExecutorUse(
    heap_used_bytes=GIB,
    heap_committed_bytes=2 * GIB,
    resident_bytes=2.75 * GIB,
    cpu_cores=1.0,
    gc_seconds=0.1,
    gc_count=1.0,
    spilled_bytes=0.0,
)
OTHER = {
    "operators": ["read", "count"],
    "offered_per_executor": 60.0,
    "heap_bytes": 3 * GIB,
    "overhead_bytes": 2 * GIB,
    "task_cpus": 1,
}


class Newcomer:
    """An application with far too much, observed every ten seconds."""

    def __init__(self, **others: dict[str, object]) -> None:
        self.now, self.said = 0.0, Said()
        limits = Limits(16, 64 * GIB, 1000, 1000 * GIB)
        self.policy = SagePolicy(
            FixedPolicy(Hold("right")),
            SageSettings(),
            limits=limits,
            around=Surroundings(said=lambda: self.said, others=lambda: others),
            first_after=180.0,
        )

    def run(
        self,
        windows: int,
        conf: dict[str, str] | None = None,
        facts: dict[str, int] | None = None,
        **use: float,
    ):
        answers = []
        for _ in range(windows):
            self.now += 10.0
            query = a_query(self.now - 10, backlog=10.0)
            window = a_window(self.now, 2, queries=(query,))
            found = dataclasses.replace(USE, **use)
            states = tuple(dataclasses.replace(state, use=found) for state in window.executors)
            told = SizingFacts(conf or LARGE, **(facts or {}))
            answers.append(self.policy.propose(dataclasses.replace(window, executors=states, sizing=told)))
        return answers


def test_one_step_for_all_after_the_first_minutes():
    *before, first = Newcomer().run(19)
    assert not any(isinstance(answer, Resize) for answer in before)
    assert isinstance(first, Resize)
    assert first.settings == {
        "spark.executor.memory": f"{int(2 * 1024 * 1.1) + 1}m",
        "spark.executor.memoryOverhead": f"{int(960 * 1.1)}m",
        "spark.executor.cores": "2",
        "spark.task.cpus": "1",
    }
    assert first.before["spark.executor.memory"] == "8192m" and first.before["spark.task.cpus"] == "2"
    assert "first sizing, from 120 s of samples with 10% on top" in first.reason
    assert first.seen["heap_committed_bytes"] == 2 * GIB


def test_nothing_is_left_for_the_rules_on_shrinking():
    newcomer = Newcomer()
    (*_, first) = newcomer.run(19)
    sized = Newcomer()
    sized.policy.recall(newcomer.policy.learned())
    answers = sized.run(40, conf={**LARGE, **first.settings})
    assert not any(isinstance(answer, Resize) for answer in answers)


def test_a_similar_application_tells_what_it_came_to_need():
    (*_, first) = Newcomer(words=OTHER).run(19)
    assert first.settings["spark.executor.memory"] == "3072m"
    assert first.settings["spark.executor.memoryOverhead"] == "2048m"
    assert "from words, which does the same" in first.reason


def test_a_similar_application_may_ask_for_more():
    small = {"spark.executor.memory": "2100m", "spark.executor.memoryOverhead": "2g"}
    (*_, first) = Newcomer(words=OTHER).run(19, conf=small)
    assert first.settings == {"spark.executor.memory": "3072m"}


def test_pins_and_vetoes_hold_here_too():
    newcomer = Newcomer()
    newcomer.said = parse_said({"pin": ["heap"], "veto": ["P7"]}, "here")
    (*_, first) = newcomer.run(19)
    assert set(first.settings) == {"spark.executor.cores", "spark.task.cpus"}


@pytest.mark.parametrize(
    ("facts", "use", "left_alone"),
    [
        ({"memory_kill_count": 0}, {"spilled_bytes": 5.0, "gc_seconds": 0.9}, "spark.executor.memory"),
        (None, {"heap_committed_bytes": float("nan")}, "spark.executor.memory"),
        (None, {"cpu_cores": float("nan")}, "spark.task.cpus"),
    ],
)
def test_what_is_unknown_or_was_short_is_left_alone(facts, use, left_alone):
    (*_, first) = Newcomer().run(19, facts=facts, **use)
    assert left_alone not in (first.settings if isinstance(first, Resize) else {})


def test_an_application_that_was_sized_before_is_left_to_the_rules():
    newcomer = Newcomer()
    newcomer.policy.recall({"known": {"sized": True}})
    assert not any(isinstance(answer, Resize) for answer in newcomer.run(19))


def test_a_size_that_no_rule_changes_is_told_to_others():
    settled = Newcomer()
    conf = {"spark.executor.memory": "2100m", "spark.executor.memoryOverhead": "1000m"}
    settled.run(32, conf=conf)
    kept = settled.policy.learned()["size"]
    (known,) = read_sizes({"words": kept})
    assert known == KnownSize("words", ("count", "read"), 50.0, 2100 * MIB, 1000 * MIB, 1)


def test_similar_means_the_same_operators_at_a_comparable_rate():
    known = read_sizes({"words": OTHER, "broken": {"operators": 5}, "else": {**OTHER, "operators": ["join"]}})
    assert [one.name for one in known] == ["words", "else"]
    assert find_most_similar(("count", "read"), 100.0, known) == known[0]
    assert find_most_similar(("count", "read", "a", "b"), 100.0, known) is None
    assert find_most_similar(("count", "read"), 1000.0, known) is None
    assert find_most_similar(("count", "read"), 0.0, known) is None
