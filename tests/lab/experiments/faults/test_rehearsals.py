"""Faults of a made-up Spark: each does what it says, and the product gets over it."""

from __future__ import annotations

import pytest

from penstock_lab.experiments.faults.disturbances import Disturbance
from penstock_lab.experiments.faults.matrix import BROKER_AWAY, DRIVER_FAULTS, EXECUTOR_FAULTS, FaultCell
from penstock_lab.experiments.faults.rehearsals import find_rehearsal
from penstock_lab.experiments.faults.rows import is_wrong
from penstock_lab.experiments.faults.trials import needs_ground
from penstock_lab.experiments.faults.worlds.strikes import Strike

FAULTS = (*EXECUTOR_FAULTS, *DRIVER_FAULTS, BROKER_AWAY)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("part", ["migration", "pipeline"])
def test_a_fault_of_spark_is_rehearsed(fault: str, part: str):
    cell = FaultCell(fault, part)
    rehearse = find_rehearsal(cell, moments=1)
    assert rehearse is not None and needs_ground(cell)
    row = rehearse(cell)
    assert row["rehearsed"] and row["runs"] == 1 and not is_wrong(row)


@pytest.mark.parametrize(
    ("fault", "part"),
    [("network of a host cut", "loop"), ("executor slow", "loop"), ("executor killed", "restart"),
     ("journal away", "loop")],
)  # fmt: skip
def test_what_only_spark_can_show_and_what_needs_none_is_not_rehearsed(fault: str, part: str):
    assert find_rehearsal(FaultCell(fault, part), moments=1) is None


class Struck:
    """What a strike did, and when."""

    def __init__(self) -> None:
        self.now, self.seen = 0, list[tuple[int, str]]()

    def lose_executor(self) -> None:
        self.seen.append((self.now, "lost"))

    def bring_executor(self) -> None:
        self.seen.append((self.now, "came"))

    def slow_down(self, share: float) -> None:
        self.seen.append((self.now, f"share {share:g}"))

    def end_driver(self) -> None:
        self.seen.append((self.now, "driver ended"))

    def start_driver(self) -> None:
        self.seen.append((self.now, "driver started"))


def strike(fault: str) -> tuple[list[tuple[int, str]], list[int]]:
    """Strike from the 10th second to the 70th; return what was done, and when all stood still."""
    disturbance, spark, still = Disturbance(fault), Struck(), []
    one = Strike(disturbance)
    for spark.now in range(100):
        if spark.now == 10:
            disturbance.strike(10.0)
        if spark.now == 70:
            disturbance.mend(70.0)
        if not one.pass_second(spark.now, spark):
            still.append(spark.now)
    return spark.seen, still


def test_each_fault_does_what_it_says():
    whole = list(range(10, 70))
    assert strike("executor killed") == ([(10, "lost"), (25, "came")], [])
    thrice = [(at, what) for one in (10, 30, 50) for at, what in ((one, "lost"), (one + 15, "came"))]
    assert strike("executor out of memory") == (thrice, [])
    assert strike("executor frozen") == strike("driver frozen") == strike("broker away") == ([], whole)
    assert strike("driver killed") == ([(10, "driver ended"), (30, "driver started")], whole[:20])
    seen, still = strike("executor slow")
    assert not still and [what for _, what in seen[9:12]] == ["share 1", "share 0.1", "share 0.1"]
    assert strike("journal away") == ([], [])
