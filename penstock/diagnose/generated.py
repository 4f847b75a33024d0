"""Traces made to measure: workers, events per second and the share of messages are parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.diagnose.trace import Activity, Kind, Times, Trace, Work

_TYPES = (Activity.PROCESSING, Activity.SERIALIZATION, Activity.BUFFER, Activity.SCHEDULING)
_OPERATORS = ("source", "flatmap", "count", "sink")


@dataclass(frozen=True, slots=True)
class TraceShape:
    """How a generated trace looks; the defaults are the densest trace of section 3.7.1."""

    events: int
    workers: int = 48
    events_per_second: int = 30_000
    message_share: float = 0.4
    seed: int = 0


def generated_trace(shape: TraceShape) -> Trace:
    """A trace of that shape: activities that fill nine tenths of a worker's time, messages of up to 2 ms."""
    random = np.random.default_rng(shape.seed)
    messages = int(shape.events * shape.message_share / 2)
    activities = shape.events // 2 - messages
    span = shape.events * 1_000_000 // shape.events_per_second
    worker, start, end = _activities(random, shape, activities, span)
    sent = random.integers(0, max(1, span - 2_000), messages)
    sender = random.integers(0, shape.workers, messages)
    receiver = (sender + random.integers(1, shape.workers, messages)) % shape.workers
    received = sent + random.integers(50, 2_000, messages)
    kind = np.repeat(
        [Kind.START, Kind.END, Kind.SEND, Kind.RECEIVE], [len(start), len(end), messages, messages]
    )
    number, chosen = np.arange(messages), random.integers(0, 4, len(start))
    types = np.array(_TYPES)[chosen]
    none, message = np.full(len(start), -1), np.full(2 * messages, Activity.DATA_MESSAGE)
    zeros = np.zeros(2 * len(start), dtype=np.int64)
    time = np.concatenate([start, end, sent, received])
    return Trace(
        time_us=time,
        worker=np.concatenate([worker, worker, sender, receiver]).astype(np.int32),
        kind=kind.astype(np.uint8),
        activity=np.concatenate([types, types, message]).astype(np.uint8),
        correlation=np.concatenate([zeros, number, number]),
        remote=np.concatenate([none, none, receiver, sender]).astype(np.int32),
        work=np.concatenate([chosen, chosen, np.zeros(2 * messages)]).astype(np.int32),
        workers=tuple(f"worker {place}" for place in range(shape.workers)),
        works=tuple(Work(name) for name in _OPERATORS),
    ).in_time_order()


def _activities(
    random: np.random.Generator, shape: TraceShape, count: int, span: int
) -> tuple[Times, Times, Times]:
    """Workers, starts and ends of activities that never overlap on a worker."""
    each = max(1, count // shape.workers)
    starts = np.sort(random.integers(0, span, (shape.workers, each)), axis=1)
    following = np.concatenate([starts[:, 1:], np.full((shape.workers, 1), span)], axis=1)
    ends = starts + (following - starts) * 9 // 10
    workers = np.repeat(np.arange(shape.workers), each)
    longer = (ends > starts).ravel()
    return workers[longer], starts.ravel()[longer], ends.ravel()[longer]
