"""The loop's ports over a simulated dataflow: what it sees, what it changes, and where it writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.dataflow.metrics import Floats, Integers, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, OperatorQuery, OperatorWindow, SourceRate
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Action, Proposal, Resize
from penstock.decide.verdict import Accepted, Verdict, VerdictLog
from penstock.journal.records import ActionRecord
from penstock.runtime.ports import Source
from penstock.simulate.events import VirtualEvents
from penstock.simulate.flow import VirtualDataflow
from penstock.simulate.virtual import SCATTER, Simulated, make_generator

LEAST_FACTOR = 0.05
"""A measurement keeps at least this share of its value, however large the noise: none turns negative."""


class VirtualSource:
    """Windows of the simulated dataflow since the last call, with seeded noise on what is measured."""

    def __init__(self, dataflow: VirtualDataflow | VirtualEvents, seed: int) -> None:
        self.dataflow = dataflow
        self._noise = Noise(dataflow.experiment.scenario.noise, seed)
        self._scatter = dataflow.scatter()
        self._random = make_generator(seed, SCATTER)
        self._start = 0

    def observe(self, now: float) -> OperatorWindow | NotReady:
        """Return what happened since the last call."""
        start, end = self._start, self.dataflow.now
        if end <= start:
            return NotReady("no time has passed", "a window", now + 1)
        self._start = end
        experiment = self.dataflow.experiment
        operator, records, worked = self.dataflow.instance_work()
        metrics = self._metrics(start, end, operator, records, worked)
        processed = np.bincount(operator, weights=records, minlength=len(experiment.names))
        sources = self._sources(start, end, processed.tolist())
        latency = self.dataflow.latency(start, end)
        query = OperatorQuery(
            query_id=experiment.name,
            name=experiment.name,
            graph=experiment.graph,
            metrics=metrics,
            sources=sources,
            latency_seconds=None if latency is None else self._noise.on(latency),
        )
        held = self.dataflow.parallelism()
        return OperatorWindow(experiment.name, start, end, held, (query,))

    def _metrics(
        self, start: int, end: int, operator: Integers, records: Floats, worked: Floats
    ) -> MetricWindow:
        """Return what is measured: with noise on the time that instances worked."""
        if self._scatter is not None:
            # the mean of n services has the variance c_s² / n, which policies estimate c_s² from
            spread = np.sqrt(self._scatter[operator] / np.maximum(records, 1.0))
            worked = worked * np.maximum(LEAST_FACTOR, 1 + spread * self._random.standard_normal(len(worked)))
        # what is off is off for all instances of an operator: more of them do not average it out
        measured = worked * self._noise.draw_factors(len(self.dataflow.experiment.names))[operator]
        return MetricWindow(
            start=start,
            end=end,
            operator=operator,
            records_in=records,
            records_out=records * self.dataflow.experiment.selectivity[operator],
            useful_seconds=measured,
            waiting_seconds=np.maximum(0.0, end - start - measured),
        )

    def _sources(self, start: int, end: int, processed: list[float]) -> dict[str, SourceRate]:
        experiment, rates = self.dataflow.experiment, {}
        for name in experiment.graph.sources:
            number = experiment.graph.index[name]
            count = float(np.add.reduce(self.dataflow.offered[start:end, number]))
            if self._scatter is not None and self._scatter[number] > 0:
                # so many arrivals have the variance c_a² · count
                count = max(0.0, count + np.sqrt(self._scatter[number] * count) * self._random.normal())
            offered = self._noise.on(count / (end - start))
            read = processed[number] / (end - start)
            rates[name] = SourceRate(offered, read, self.dataflow.waiting(number))
        return rates


class Noise:
    """Relative, normal and seeded, on what is measured."""

    def __init__(self, deviation: float, seed: int) -> None:
        self._deviation = deviation
        self._random = np.random.default_rng(seed)

    def on(self, exact: float) -> float:
        """Return one reading."""
        if self._deviation == 0:
            return float(exact)
        return float(exact) * max(LEAST_FACTOR, 1 + self._deviation * float(self._random.standard_normal()))

    def draw_factors(self, count: int) -> Floats:
        """Draw by what readings are multiplied."""
        if self._deviation == 0:
            return np.ones(count)
        return np.maximum(LEAST_FACTOR, 1 + self._deviation * self._random.standard_normal(count))


class LaggingSource:
    """A source whose windows are known only some time after they have ended."""

    def __init__(self, source: Source, lag: int) -> None:
        self._source, self._lag = source, lag
        self._gathered: deque[tuple[int, ApplicationWindow | NotReady]] = deque()

    def gather(self, now: int) -> None:
        """End a window now, to be shown later."""
        self._gathered.append((now + self._lag, self._source.observe(float(now))))

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """Return the newest window that is known by now."""
        known = [self._gathered.popleft()[1] for at, _ in tuple(self._gathered) if at <= now]
        return known[-1] if known else NotReady("no metrics are known yet", "a window", now + self._lag)


class VirtualActuator:
    """Changes the simulated dataflow; an action ends when the scenario's pause is over."""

    def __init__(self, dataflow: Simulated) -> None:
        self.dataflow = dataflow
        self.ends_at: int | None = None
        self._begun_at = 0.0
        self._planned: Mapping[str, int] = {}

    def begin(self, now: float, action: Action) -> None:
        """Start an action."""
        self._begun_at, self._planned = now, dict(action.planned)
        self.ends_at = self.dataflow.change(action.planned)

    def poll(self, now: float) -> Outcome | None:
        """Return the outcome, once the new parallelism is there."""
        if self.ends_at is None or now < self.ends_at:
            return None
        self.ends_at = None
        planned = self._planned
        return Outcome(Status.DONE, planned, planned, self.held(), now - self._begun_at)

    def abandon(self) -> None:
        """Do nothing: the dataflow takes over the new parallelism by itself."""

    def held(self) -> Mapping[str, int]:
        """Return the instances there now."""
        return self.dataflow.parallelism()


@dataclass
class MemoryRecord:
    """A journal that lives as long as the run."""

    verdicts: VerdictLog = field(default_factory=VerdictLog)
    records: list[ActionRecord] = field(default_factory=list)
    _notes: tuple[str, ...] = ()

    def observed(self, now: float, window: ApplicationWindow) -> None:
        """Keep nothing: the dataflow itself remembers every second."""

    def decided(
        self, now: float, application: str, answer: Proposal | NotReady, verdict: Verdict, policy: str = ""
    ) -> int:
        """Keep a verdict; the same one again is counted."""
        self._notes = verdict.notes if isinstance(verdict, Accepted) else ()
        self.verdicts.add(now, verdict)
        return len(self.verdicts)

    def intend(
        self,
        now: float,
        application: str,
        decision_id: int,
        action: Action | Resize,
        before: Mapping[str, int] | Mapping[str, str],
    ) -> int:
        """Keep what is about to be done."""
        planned = dict(action.planned)
        record = ActionRecord(
            action_id=len(self.records) + 1,
            application=application,
            decision_id=decision_id,
            policy="",
            intended_at=now,
            seen=(),
            before={unit: int(count) for unit, count in before.items()},
            proposed=planned,
            planned=planned,
            exact=dict(action.exact),
            reason=action.reason,
            notes=self._notes,
            expected=action.expected,
        )
        self.records.append(record)
        self.verdicts.close_last()
        return record.action_id

    def ended(self, now: float, action_id: int, outcome: Outcome) -> None:
        """Keep what became of an action."""
        done = {"status": outcome.status, "ended_at": now, "observed": dict(outcome.observed)}
        self._change(action_id, seconds=outcome.seconds, detail=outcome.detail, **done)

    def effect(self, now: float, action_id: int, figures: Mapping[str, float]) -> None:
        """Keep what it brought."""
        self._change(action_id, effect_at=now, measured=dict(figures))

    def unfinished(self, application: str) -> Sequence[ActionRecord]:
        """Return the actions without an outcome."""
        return [record for record in self.records if record.status is None]

    def actions(self, application: str | None = None, limit: int | None = None) -> Sequence[ActionRecord]:
        """Return the latest actions, oldest first."""
        return self.records[-limit:] if limit else list(self.records)

    def _change(self, action_id: int, **values: object) -> None:
        self.records[action_id - 1] = replace(self.records[action_id - 1], **values)  # type: ignore[arg-type]
