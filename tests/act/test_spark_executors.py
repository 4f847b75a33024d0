"""What the actuator asks of Spark when a change is broken off; told by a stand-in, without a JVM."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.act.spark_executors import SparkActuator
from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.errors import ActionFailed, SparkUnavailable
from penstock.settings import Settings
from tests.fakes import a_scale


class Names(list[str]):
    """The JVM: any dotted name is there; called, it gives its first argument, or an empty list."""

    add = list.append

    def __getattr__(self, name: str) -> Any:
        return Names()

    def __call__(self, *given: Any) -> Any:
        return given[0] if given else Names()

    def writeValueAsString(self, value: Any) -> str:  # noqa: N802
        return json.dumps(value)


class Cluster:
    """Stands in for the Spark context: idle executors, and every call that changes them."""

    def __init__(self, *numbers: int) -> None:
        self.here = [str(number) for number in numbers]
        self.calls: list[tuple[str, Any]] = []
        self.silent: set[str] = set()
        self.refuses = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self

    def isLocal(self) -> bool:  # noqa: N802
        return False

    def executorList(self, active: bool) -> list[dict[str, Any]]:  # noqa: N802
        figures = ("maxTasks", "activeTasks", "maxMemory", "totalGCTime", "memoryUsed", "diskUsed")
        return [{"id": name, "hostPort": "node:1", **dict.fromkeys(figures, 0)} for name in self.here]

    def requestTotalExecutors(self, total: int, *_: Any) -> bool:  # noqa: N802
        self._called("total", total)
        return not self.refuses

    def decommissionExecutors(self, pairs: list[str], *_: Any) -> None:  # noqa: N802
        self._called("stop", list(pairs))

    def killExecutors(self, ids: list[str]) -> None:  # noqa: N802
        self._called("release", list(ids))
        self.here = [name for name in self.here if name not in ids]

    def activeStreamingQueries(self) -> Any:  # noqa: N802
        return SimpleNamespace(toString=lambda: "{}", values=list)

    def _called(self, what: str, given: Any) -> None:
        self.calls.append((what, given))
        if what in self.silent:
            raise Py4JError("the answer was lost")


class StandIn(SparkSession):
    """A session over such a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._jsparkSession = cluster
        self._jvm = Names()
        gateway = SimpleNamespace(new_array=lambda _, length: [""] * length)
        context = SimpleNamespace(sc=lambda: cluster)
        self._about = SimpleNamespace(master="local-cluster[4,1,1024]", _jsc=context, _gateway=gateway)

    @property
    def version(self) -> str:
        return "4.3.0"

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        return self._about

    @property
    def conf(self) -> Any:
        return SimpleNamespace(get=lambda key, default=None: default)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1, 2, 3)


@pytest.fixture
def actuator(cluster: Cluster) -> SparkActuator:
    return SparkActuator(StandIn(cluster), Settings())


class DrainMover:
    """Stands in for what moves state: a drain that cannot begin, or that ends so."""

    def __init__(self, refuses: str = "", ends: tuple[Status, int, str] | None = None) -> None:
        self.refuses, self.ends = refuses, ends
        self.drained: list[tuple[str, ...]] = []

    def obstacle(self) -> str | None:
        return None

    def drain(self, executor_ids: tuple[str, ...]) -> None:
        self.drained.append(executor_ids)
        if self.refuses:
            raise ActionFailed(self.refuses)

    def moving(self) -> bool:
        return False

    def ended(self) -> tuple[Status, int, str] | None:
        return self.ends


@pytest.mark.parametrize(
    ("mover", "said"),
    [
        (DrainMover(ends=(Status.DONE, 2, "2 of 2 bins moved")), "state was moved away in 1 s"),
        (
            DrainMover(ends=(Status.PARTIAL, 1, "1 given up: gone")),
            "not all state was moved away in 1 s: 1 g",
        ),
        (DrainMover(refuses="a migration is under way"), "not all state was moved away in 1 s: a migration"),
    ],
)
def test_the_outcome_says_whether_state_has_left_before_its_executor(cluster: Cluster, mover: Any, said: str):
    actuator = SparkActuator(StandIn(cluster), Settings(), lambda: {"1": 2, "2": 2, "3": 2}, mover)
    actuator.begin(0.0, a_scale(2))
    assert mover.drained == [("3",)]
    outcomes = [actuator.poll(float(second)) for second in range(1, 4)]
    assert outcomes[-1] is not None and outcomes[-1].status is Status.DONE
    assert outcomes[-1].detail.startswith(said)


def test_a_drain_that_is_broken_off_releases_who_was_told_to_stop(cluster: Cluster, actuator: SparkActuator):
    actuator.begin(0.0, a_scale(1))
    assert cluster.calls == [("total", 1), ("stop", ["3", "2"])]
    actuator.abandon()
    assert cluster.calls[2:] == [("release", ["3", "2"]), ("total", 1)]
    assert actuator.held() == {EXECUTORS: 1}
    actuator.abandon()
    assert len(cluster.calls) == 4, "nothing is left to give up"


def test_executors_may_have_been_told_to_stop_although_no_answer_came(
    cluster: Cluster, actuator: SparkActuator
):
    cluster.silent = {"stop"}
    with pytest.raises(SparkUnavailable):
        actuator.begin(0.0, a_scale(2))
    actuator.abandon()
    assert cluster.calls[2:] == [("release", ["3"]), ("total", 2)]


def test_what_spark_refused_or_never_heard_of_releases_nobody(cluster: Cluster, actuator: SparkActuator):
    cluster.refuses = True
    with pytest.raises(ActionFailed, match="refused a total of 1"):
        actuator.begin(0.0, a_scale(1))
    actuator.abandon()
    assert cluster.calls == [("total", 1)]


def test_a_change_that_has_ended_is_not_broken_off(cluster: Cluster, actuator: SparkActuator):
    actuator.begin(0.0, a_scale(2))
    assert actuator.poll(1.0) is None
    outcome = actuator.poll(2.0)
    assert outcome is not None and outcome.status is Status.DONE
    done = len(cluster.calls)
    actuator.abandon()
    assert len(cluster.calls) == done


def test_a_spark_that_no_longer_answers_is_asked_for_all_that_is_owed_and_raises_nothing(
    cluster: Cluster, actuator: SparkActuator, caplog: pytest.LogCaptureFixture
):
    actuator.begin(0.0, a_scale(1))
    cluster.silent = {"release", "total"}
    actuator.abandon()
    assert cluster.calls[2:] == [("release", ["3", "2"]), ("total", 1)]
    assert "the answer was lost" in caplog.text


def test_a_poll_that_failed_half_way_is_taken_up_where_it_stood(cluster: Cluster, actuator: SparkActuator):
    actuator.begin(0.0, a_scale(1))
    cluster.silent = {"total"}
    with pytest.raises(SparkUnavailable):
        actuator.poll(1.0)
    cluster.silent = set()
    outcome = actuator.poll(2.0)
    assert outcome is not None and outcome.status is Status.DONE
    assert cluster.calls[2:] == [("release", ["3", "2"]), ("total", 1), ("total", 1)]
