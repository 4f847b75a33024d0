"""What executors use, and what is recommended for them, as the loop has seen it last."""

from __future__ import annotations

from dataclasses import replace

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    ExecutorState,
    ExecutorUse,
    MemoryLoss,
    SizingFacts,
    SlotWindow,
)
from penstock.decide.manager.restarts import RecommendOnly
from penstock.decide.policy import ExpectedEffect, Hold, Resize
from penstock.decide.verdict import Accepted
from penstock.runtime.loop import Cycle
from penstock.runtime.sizing_board import SizingBoard

GIB = 1024**3
USE = ExecutorUse(5.0 * GIB, 5.5 * GIB, 6.5 * GIB, 1.8)
RESIZE = Resize(
    {"spark.executor.memory": "8g"},
    "heap is full",
    ExpectedEffect("less GC"),
    {"spark.executor.memory": "6g"},
)


def a_window(gc_seconds: float = 3.0, end: float = 20.0) -> SlotWindow:
    executor = ExecutorState("1", "10.0.0.1", 2, 1, GIB, 4 * GIB, gc_seconds, use=USE)
    facts = SizingFacts({"spark.executor.memory": "6g", "spark.executor.memoryOverhead": "1g"}, 0.5 * GIB)
    loss = MemoryLoss("7", "10.0.0.2", 15.0, out_of_heap=True)
    known = {"executors": (executor,), "sizing": facts, "memory_losses": (loss,)}
    return SlotWindow("app-1", end - 10, end, {EXECUTORS: 1}, queries=(), **known)  # type: ignore[arg-type]


def test_before_the_first_window_nothing_is_known() -> None:
    assert SizingBoard().plain()["executors"] == []


def test_use_is_told_against_what_an_executor_is_given() -> None:
    board = SizingBoard()
    board.notice(Cycle(20.0, a_window()))
    board.notice(Cycle(30.0, a_window(gc_seconds=4.5, end=30.0)))
    told = board.plain()
    (executor,) = told["executors"]
    assert executor["heap_used_bytes"] == 5.0 * GIB and executor["cpu_cores"] == 1.8
    assert executor["spilled_bytes"] is None, "NaN has no place in JSON"
    assert executor["gc_share"] == (4.5 - 3.0) / 10.0
    assert (told["limits"]["heap_bytes"], told["limits"]["overhead_bytes"]) == (6.0 * GIB, 1.0 * GIB)
    assert told["losses"] == [{"executor": "7", "host": "10.0.0.2", "at": 15.0, "out_of_heap": True}]


def test_without_sizing_there_are_only_sparks_own_figures() -> None:
    board, window = SizingBoard(), a_window()
    bare = replace(window, sizing=None, executors=(replace(window.executors[0], use=None),))
    board.notice(Cycle(20.0, bare))
    told = board.plain()
    assert told["limits"] is None and told["executors"][0]["heap_used_bytes"] is None
    assert told["executors"][0]["heap_peak_bytes"] == 4 * GIB


def test_a_recommendation_stands_until_another_answer_and_says_why_it_is_not_done() -> None:
    board, window = SizingBoard(), a_window()
    board.notice(Cycle(20.0, window, RESIZE, RecommendOnly().judge(20.0, RESIZE)))
    board.notice(Cycle(21.0))
    board.notice(Cycle(30.0, window, NotReady("wait", "more")))
    found = board.plain()["recommended"]
    assert found["settings"] == {"spark.executor.memory": "8g"} and found["guardrail"] == "recommend-only"
    assert "--allow-restart" in found["verdict"] and not found["accepted"]
    board.notice(Cycle(40.0, window, RESIZE, Accepted(RESIZE)))
    assert board.plain()["recommended"]["accepted"]
    board.notice(Cycle(50.0, window, Hold("fine")))
    assert board.plain()["recommended"] is None
