"""Executors that die for want of memory are named, with what to change, and no size is changed for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, MemoryLoss
from penstock.decide.manager.manager import NothingToDo, Rejected, ScalingManager, Waiting
from penstock.decide.policy import IDLE_SECONDS, ExpectedEffect, Scale
from penstock.decide.verdict import Accepted
from tests.decide.manager_run import EAGER
from tests.decide.situations import hold, scale, window

KILLED = MemoryLoss("3", "10.0.0.7", 82.0, False)
FULL = MemoryLoss("4", "10.0.0.8", 85.0, True)


def judge(answer, *losses):
    return ScalingManager(EAGER).judge(100.0, replace(window(backlog=5000.0), memory_losses=losses), answer)


@pytest.mark.parametrize("size", [1, 3, 5, 8])
def test_no_size_is_changed_while_executors_die_for_memory(size):
    verdict = judge(scale(size), KILLED)
    assert isinstance(verdict, Rejected) and verdict.guardrail == "lost-for-memory"
    assert "executor 3 on 10.0.0.7 was killed" in verdict.reason and "18 s ago" in verdict.reason
    assert "spark.executor.memoryOverhead" in verdict.reason
    assert isinstance(judge(scale(size)), Accepted)


def test_a_full_heap_names_the_heap():
    verdict = judge(scale(8), KILLED, FULL)
    assert "executor 4 on 10.0.0.8 ran out of heap (raise spark.executor.memory;" in verdict.reason
    assert "the last of 2" in verdict.reason


@pytest.mark.parametrize(
    ("answer", "kind"), [(hold(), NothingToDo), (NotReady("no batch", "a batch"), Waiting)]
)
def test_a_loss_is_told_beside_whatever_else_is_said(answer, kind):
    verdict = judge(answer, KILLED)
    assert isinstance(verdict, kind)
    assert "executor 3 on 10.0.0.7 was killed" in verdict.reason
    assert verdict.reason.count("executor 3") == 1
    assert "killed" not in judge(answer).reason


def test_without_input_executors_are_given_back_all_the_same():
    idle = Scale({EXECUTORS: 1}, "no input", ExpectedEffect("nothing is held", {IDLE_SECONDS: 600.0}))
    verdict = judge(idle, KILLED)
    assert isinstance(verdict, Accepted) and "killed" in verdict.notes[-1]
