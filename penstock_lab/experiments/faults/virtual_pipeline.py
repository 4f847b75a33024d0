"""A pipeline in virtual time: batches that follow from rates and costs, for the real monitor and loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import nan

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import OperatorWindow
from penstock.decide.limits import WithinLimits
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.registry import policy_entry
from penstock.pipeline import Pipeline, files
from penstock.pipeline.actuator import BoardActuator
from penstock.pipeline.batches import BatchDone, InstanceWork
from penstock.pipeline.board import Board
from penstock.pipeline.monitor import Monitor, TopicReading
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Ports
from penstock.settings.model import Settings
from penstock.simulate.ports import MemoryRecord

BATCH_SECONDS = 5.0
WORDS = 20
RATE = 100.0
COSTS = {"split": 9.9 / RATE, "count": 19.8 / (RATE * WORDS)}
"""Seconds a record: 10 instances of split and 20 of count are busy 99 % of the time."""
SELECTIVITY = {"split": WORDS, "count": 0.5}


def word_count(most: int = 40) -> Pipeline:
    """Return the pipeline that splits sentences and counts words."""
    pipeline = Pipeline("words", topics=files("topics"))
    pipeline.topic("sentences", schema="sentence string")
    pipeline.add(len, name="split", reads="sentences", writes="words", schema="word string",
                 parallelism=(1, most))  # fmt: skip
    pipeline.add(len, name="count", reads="words", writes="counts", schema="word string, seen bigint",
                 parallelism=(1, most))  # fmt: skip
    return pipeline


class WaitingRecords:
    """A queue of records, oldest first: how many, when they arrived, and when they entered the pipeline."""

    def __init__(self) -> None:
        self.parts: deque[tuple[float, float, float]] = deque()

    def add(self, records: float, arrived: float, entered: float) -> None:
        """Add the newest."""
        self.parts.append((records, arrived, entered))

    def take(self, records: float) -> tuple[float, float]:
        """Take the oldest away, and return when the mean of them arrived and entered."""
        taken = []
        while self.parts and records > 1e-6:
            held, arrived, entered = self.parts.popleft()
            part = min(held, records)
            taken.append((part, arrived, entered))
            records -= part
            if held > part:
                self.parts.appendleft((held - part, arrived, entered))
        total = sum(part for part, _, _ in taken)
        if not total:
            return nan, nan
        return sum(one[0] * one[1] for one in taken) / total, sum(one[0] * one[2] for one in taken) / total


@dataclass
class VirtualPipeline:
    """Every five seconds each function serves what waits, or as much as its instances can.

    Records are known to the five seconds in which they came, first come, first served. `hot` is the share of
    the words that are one word, which one instance of count has to serve. `clock` tells the time of reports.
    """

    settings: Settings
    rate: float = RATE
    hot: float = 0.0
    now: float = 0.0
    waiting: dict[str, float] = field(default_factory=lambda: {"split": 0.0, "count": 0.0})
    queues: dict[str, WaitingRecords] = field(
        default_factory=lambda: {"split": WaitingRecords(), "count": WaitingRecords()}
    )
    served: dict[str, float] = field(default_factory=lambda: {"split": 0.0, "count": 0.0})
    clock: Callable[[float], float] = lambda now: now

    def __post_init__(self) -> None:
        layout = word_count().layout()
        self.board = Board({"split": (1, 40), "count": (1, 40)}, {})
        self.monitor = Monitor("words", layout)
        policy = policy_entry(self.settings.run.policy).make(self.settings)
        self.record = MemoryRecord()
        self.policy = WithinLimits(policy, self.board.limits, lambda: self.board.pinned)
        manager = ScalingManager(self.settings.manager, self.settings.bounds, self.settings.goals)
        ports = Ports(self, self.policy, manager, self.record, BoardActuator(self.board))
        self.loop = Loop("words", ports, LoopSettings(policy_interval=self.settings.manager.policy_interval))
        self.errors: list[str] = []

    def observe(self, now: float) -> OperatorWindow | NotReady:
        """Return the monitor's window."""
        return self.monitor.observe(
            now, self.board.wanted, {"split": {"sentences": TopicReading(self.rate, self.waiting["split"])}}
        )

    def pass_batch(self) -> None:
        """Let five seconds pass, and a batch of each function."""
        self.stand_still()
        end = self.clock(self.now)
        for name in ("split", "count"):
            held = self.board.begin_batch(name)
            hot = self.hot if name == "count" else 0.0
            shares = [(1 - hot) / held + hot * (n == 0) for n in range(held)]
            served = min(self.waiting[name], BATCH_SECONDS / COSTS[name] / max(shares))
            self.waiting[name] -= served
            self.served[name] += served
            arrived, entered = self.queues[name].take(served)
            if name == "split":
                self.waiting["count"] += served * WORDS
                self.queues["count"].add(served * WORDS, self.now, entered)
            work = tuple(
                InstanceWork(n, served * share, served * share * SELECTIVITY[name], 0.0,
                             served * share * COSTS[name])
                for n, share in enumerate(shares)
            )  # fmt: skip
            self.monitor.take_in(
                BatchDone(name, int(self.now), end - BATCH_SECONDS, end, held, work, entered, arrived)
            )
            self.board.end_batch(name)

    def stand_still(self) -> None:
        """Let five seconds pass in which records come and no batch ends."""
        self.now += BATCH_SECONDS
        self.waiting["split"] += self.rate * BATCH_SECONDS
        middle = self.now - 1.5 * BATCH_SECONDS  # batches begin with the records of the five seconds before
        self.queues["split"].add(self.rate * BATCH_SECONDS, middle, middle)

    def run(self, seconds: float) -> VirtualPipeline:
        """Run with its own loop for so long."""
        while self.now < seconds:
            self.pass_batch()
            cycle = self.loop.tick(self.now)
            if cycle.error:
                self.errors.append(cycle.error)
        return self
