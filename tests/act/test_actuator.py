"""What the actuator asks of a pool of executors, also when a change is broken off or answers are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.act.actuator import ExecutorActuator, QueryBatches
from penstock.act.scaling import ScalingSettings
from penstock.dataflow.moves import Plan
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ExecutorState
from penstock.decide.outcome import Status
from penstock.decide.policy import HELD_UTILISATION, Hold, Proposal, Scale
from penstock.errors import ActionFailed, SparkUnavailable
from penstock.journal.store import open_journal
from penstock.migrate.mover import MovesEnded, Planned
from penstock.runtime.loop import Cycle, Loop
from penstock.runtime.ports import Ports
from tests.fakes import AgreeingManager, FakeSource, FixedPolicy, a_scale


class Cluster:
    """A pool of idle executors that remembers every call that changes them, and may lose its answers."""

    def __init__(self, *numbers: int) -> None:
        self.here = [str(number) for number in numbers]
        self.calls: list[tuple[str, Any]] = []
        self.silent: set[str] = set()
        self.refuses = False

    def executors(self, bins: Mapping[str, int]) -> tuple[ExecutorState, ...]:
        return tuple(ExecutorState(name, "node", 0, state_bins=bins.get(name, 0)) for name in self.here)

    def request_total(self, total: int) -> None:
        self._called("total", total)
        if self.refuses:
            raise ActionFailed(f"the cluster manager refused a total of {total} executors")

    def stop_using(self, executor_ids: Sequence[str]) -> None:
        self._called("stop", list(executor_ids))

    def release(self, executor_ids: Sequence[str]) -> None:
        self.here = [name for name in self.here if name not in executor_ids]
        self._called("release", list(executor_ids))

    def batches(self) -> Mapping[str, QueryBatches]:
        return {}

    def _called(self, what: str, given: Any) -> None:
        self.calls.append((what, given))
        if what in self.silent:
            raise SparkUnavailable("the answer was lost")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1, 2, 3)


@pytest.fixture
def actuator(cluster: Cluster) -> ExecutorActuator:
    return ExecutorActuator(cluster, ScalingSettings())


class DrainMover:
    """Stands in for what moves state: a drain that cannot begin, or that ends so."""

    def __init__(self, refuses: str = "", ends: MovesEnded | None = None) -> None:
        self.refuses, self.ends = refuses, ends
        self.drained: list[tuple[str, ...]] = []

    def obstacle(self) -> str | None:
        return None

    def plan_draining(self, executor_ids: tuple[str, ...]) -> Planned:
        self.drained.append(executor_ids)
        return ()

    def begin(self, plans: Sequence[Plan]) -> None:
        if self.refuses:
            raise ActionFailed(self.refuses)

    def moving(self) -> bool:
        return False

    def ended(self) -> MovesEnded | None:
        return self.ends


@pytest.mark.parametrize(
    ("mover", "said"),
    [
        (DrainMover(ends=MovesEnded(Status.DONE, 2, "2 of 2 bins moved")), "state was moved away in 1 s"),
        (
            DrainMover(ends=MovesEnded(Status.PARTIAL, 1, "1 given up: gone")),
            "not all state was moved away in 1 s: 1 g",
        ),
        (DrainMover(refuses="a migration is under way"), "not all state was moved away in 1 s: a migration"),
    ],
)
def test_the_outcome_says_whether_state_has_left_before_its_executor(cluster: Cluster, mover: Any, said: str):
    actuator = ExecutorActuator(cluster, ScalingSettings(), lambda: {"1": 2, "2": 2, "3": 2}, mover)
    actuator.begin(0.0, a_scale(2))
    assert mover.drained == [("3",)]
    outcomes = [actuator.poll(float(second)) for second in range(1, 4)]
    assert outcomes[-1] is not None and outcomes[-1].status is Status.DONE
    assert outcomes[-1].detail.startswith(said)


class BrokenPlanner(DrainMover):
    """Stands in for a planner with a bug of ours."""

    def plan_draining(self, executor_ids: tuple[str, ...]) -> Planned:
        raise TypeError("unsupported operand type(s) for +: 'int' and 'str'")

    def stop(self, reason: str) -> bool:
        return False


def test_a_bug_of_ours_in_a_drain_is_logged_with_its_trace_and_not_taken_for_an_outage(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    bins = {"1": 2, "2": 2, "3": 2}
    actuator = ExecutorActuator(cluster, ScalingSettings(), lambda: bins, BrokenPlanner())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        actuator.begin(0.0, a_scale(2))
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        ports = Ports(
            FakeSource(executors=lambda: 3), FixedPolicy(a_scale(2)), AgreeingManager(), journal, actuator
        )
        cycle = Loop("app-1", ports).tick(10.0)
    assert cycle.action is None and cycle.outcome is not None, "it is not tried again"
    assert cycle.outcome.status is Status.UNKNOWN and cycle.outcome.detail.startswith("TypeError")
    assert "Traceback" in caplog.text and "in plan_draining" in caplog.text


def test_a_drain_that_is_broken_off_releases_who_was_told_to_stop(
    cluster: Cluster, actuator: ExecutorActuator
):
    actuator.begin(0.0, a_scale(1))
    assert cluster.calls == [("total", 1), ("stop", ["3", "2"])]
    actuator.abandon()
    assert cluster.calls[2:] == [("release", ["3", "2"]), ("total", 1)]
    assert actuator.held() == {EXECUTORS: 1}
    actuator.abandon()
    assert len(cluster.calls) == 4, "nothing is left to give up"


def test_executors_may_have_been_told_to_stop_although_no_answer_came(
    cluster: Cluster, actuator: ExecutorActuator
):
    cluster.silent = {"stop"}
    with pytest.raises(SparkUnavailable):
        actuator.begin(0.0, a_scale(2))
    actuator.abandon()
    assert cluster.calls[2:] == [("release", ["3"]), ("total", 2)]


def test_what_spark_refused_or_never_heard_of_releases_nobody(cluster: Cluster, actuator: ExecutorActuator):
    cluster.refuses = True
    with pytest.raises(ActionFailed, match="refused a total of 1"):
        actuator.begin(0.0, a_scale(1))
    actuator.abandon()
    assert cluster.calls == [("total", 1)]


def test_a_change_that_has_ended_is_not_broken_off(cluster: Cluster, actuator: ExecutorActuator):
    actuator.begin(0.0, a_scale(2))
    assert actuator.poll(1.0) is None
    outcome = actuator.poll(2.0)
    assert outcome is not None and outcome.status is Status.DONE
    done = len(cluster.calls)
    actuator.abandon()
    assert len(cluster.calls) == done


def test_a_spark_that_no_longer_answers_is_asked_for_all_that_is_owed_and_raises_nothing(
    cluster: Cluster, actuator: ExecutorActuator, caplog: pytest.LogCaptureFixture
):
    actuator.begin(0.0, a_scale(1))
    cluster.silent = {"release", "total"}
    actuator.abandon()
    assert cluster.calls[2:] == [("release", ["3", "2"]), ("total", 1)]
    assert "the answer was lost" in caplog.text


def test_a_poll_that_failed_half_way_is_taken_up_where_it_stood(cluster: Cluster, actuator: ExecutorActuator):
    actuator.begin(0.0, a_scale(1))
    cluster.silent = {"total"}
    with pytest.raises(SparkUnavailable):
        actuator.poll(1.0)
    cluster.silent = set()
    outcome = actuator.poll(2.0)
    assert outcome is not None and outcome.status is Status.DONE
    assert cluster.calls[2:] == [("release", ["3", "2"]), ("total", 1), ("total", 1)]


ENOUGH = Hold("three are enough", {HELD_UTILISATION: 0.6})
SHORT = Hold("no size reaches the target", {HELD_UTILISATION: 1.4})


def wait_for_more(cluster: Cluster, order: Scale, *answers: Proposal | NotReady, path: Path) -> list[Cycle]:
    """Run a loop that begins with an order for more executors than ever come."""
    actuator = ExecutorActuator(cluster, ScalingSettings(executor_timeout=60.0))
    with closing(open_journal(path / "journal.db")) as journal:
        source = FakeSource(executors=lambda: len(cluster.here))
        loop = Loop(
            "app-1", Ports(source, FixedPolicy(order, *answers), AgreeingManager(), journal, actuator)
        )
        return [loop.tick(10.0 + second) for second in range(45)]


def test_an_order_that_is_needed_no_more_is_withdrawn_and_decisions_go_on(cluster: Cluster, tmp_path: Path):
    order = a_scale(4, utilisation_ratio=0.7)
    cycles = wait_for_more(cluster, order, ENOUGH, ENOUGH, a_scale(2, utilisation_ratio=0.7), path=tmp_path)
    (ended,) = [(cycle.at, cycle.outcome) for cycle in cycles if cycle.outcome and cycle.at < 35]
    at, outcome = ended
    assert at == 31.0, "the second window that needs no more came 20 s after the order"
    assert outcome.status is Status.PARTIAL and outcome.observed == {EXECUTORS: 3}
    assert outcome.detail.endswith("3 registered within 20 s: no more are needed; the total is set back to 3")
    assert cluster.calls[:2] == [("total", 4), ("total", 3)]


@pytest.mark.parametrize(
    ("order", "answers"),
    [
        (a_scale(4, utilisation_ratio=0.7), (SHORT,)),
        (a_scale(4, utilisation_ratio=0.7), (a_scale(5),)),
        (a_scale(4, utilisation_ratio=0.7), (NotReady("warming up", "a window"),)),
        (a_scale(4, utilisation_ratio=0.7), (ENOUGH, SHORT, ENOUGH, SHORT)),
        (a_scale(4), (ENOUGH,)),
    ],
    ids=["what is there is short", "more still", "nothing known", "one window alone", "no figure of use"],
)
def test_an_order_stands_unless_two_windows_need_no_more(
    cluster: Cluster, order: Scale, answers: tuple[Proposal | NotReady, ...], tmp_path: Path
):
    cycles = wait_for_more(cluster, order, *answers, path=tmp_path)
    assert cluster.calls == [("total", 4)] and all(cycle.outcome is None for cycle in cycles)


def test_executors_that_come_at_the_moment_of_a_withdrawal_are_kept(
    cluster: Cluster, actuator: ExecutorActuator
):
    actuator.begin(0.0, a_scale(4))
    cluster.here.append("4")
    assert not actuator.withdraw("no more are needed")
    outcome = actuator.poll(1.0)
    assert outcome is not None and outcome.status is Status.DONE
    assert not actuator.withdraw("no more are needed") and cluster.calls == [("total", 4)]
