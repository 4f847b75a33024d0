"""A query in real-time mode dies without a slot for each of its tasks, so no rule may take one away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.window import EXECUTORS, SlotWindow
from penstock.decide.goals import SizeBounds
from penstock.decide.manager.guardrails import Limited
from penstock.decide.manager.manager import Accepted, Rejected, ScalingManager
from penstock.decide.manager.real_time import RealTimeFloor
from penstock.decide.manager.settings import ManagerSettings
from tests.decide.manager_run import EAGER
from tests.decide.situations import hold, scale, situation, window


def beside(held: int, reserved: int, per_executor: int = 2) -> SlotWindow:
    seen = window(held=held)
    assert isinstance(seen, SlotWindow)
    return replace(seen, reserved_slots=reserved, reserved_for=("clicks",), slots_per_executor=per_executor)


def judge(wanted: int, held: int, reserved: int) -> object:
    return RealTimeFloor().apply(scale(wanted), replace(situation(held), window=beside(held, reserved)))


@pytest.mark.parametrize(
    ("wanted", "held", "reserved", "left"),
    [
        (2, 6, 0, 2),
        (2, 6, 7, 4),
        (4, 6, 7, 4),
        (5, 6, 7, 5),
        (8, 6, 7, 8),
        # more is needed than is there: nothing is taken, and growth is for others to ask for
        (2, 6, 20, None),
        (7, 6, 20, 7),
        (2, 4, 8, None),
    ],
)
def test_a_reduction_ends_where_every_task_has_a_slot(
    wanted: int, held: int, reserved: int, left: int | None
) -> None:
    opinion = judge(wanted, held, reserved)
    if left is None:
        assert isinstance(opinion, Rejected) and opinion.guardrail == "real-time"
        assert f"{reserved} slots stay for the tasks of clicks, which all run at once" in opinion.reason
    else:
        change = opinion.scale if isinstance(opinion, Limited) else opinion
        assert change.parallelism == {EXECUTORS: left}  # type: ignore[attr-defined]


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 200))
def test_it_never_takes_more_than_was_proposed_and_never_grows(wanted: int, held: int, reserved: int) -> None:
    opinion = judge(wanted, held, reserved)
    change = opinion.scale if isinstance(opinion, Limited) else opinion
    size = held if isinstance(opinion, Rejected) else change.parallelism[EXECUTORS]  # type: ignore[attr-defined]
    assert wanted <= size <= max(wanted, held)
    assert size * 2 >= min(reserved, held * 2) or size >= held


def manager(most: int) -> ScalingManager:
    settings: ManagerSettings = EAGER.change(largest_step_down=1.0)
    return ScalingManager(settings, SizeBounds(least=1, most=most))


def test_the_bounds_take_no_slot_from_it() -> None:
    run = manager(most=4)
    verdict = None
    for end in (1010.0, 1020.0, 1030.0):
        seen = replace(beside(6, 11), start=end - 10, end=end)
        verdict = run.judge(end, seen, scale(3))
    assert isinstance(verdict, Rejected) and verdict.guardrail == "real-time"


def test_a_fallback_takes_none_either() -> None:
    run = manager(most=20)
    run.judge(1010.0, replace(beside(6, 11), start=1000.0, end=1010.0), hold())
    verdict = run.judge_fallback(2000.0, replace(beside(6, 8), start=1990.0, end=2000.0), scale(2))
    assert isinstance(verdict, Accepted) and verdict.action.parallelism == {EXECUTORS: 4}
    assert "real-time" in " ".join(verdict.notes)


def test_operators_with_instances_of_their_own_have_none() -> None:
    seen = situation({"map": 4})
    wanted = scale({"map": 1})
    assert RealTimeFloor().apply(wanted, seen) is wanted
