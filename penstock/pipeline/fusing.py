"""Neighbouring functions as one query, where the topic between them costs more than it is worth.

A pure rule over what batches measured. A group is as large as its functions together: each keeps its own
number of instances, and the group's batches run with the sum. Batches run as they are written down to run:
one that is run again after a crash is neither passed on twice nor lost.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from penstock.pipeline.batches import BatchDone
from penstock.pipeline.definition import Function, Pipeline, Takes
from penstock.pipeline.topics import Location

Group = tuple[str, ...]
"""Functions that run as one query, from the first to the last; a single one runs alone."""
Pair = tuple[str, str]
FuseMode = Literal["auto", "never", "always"]

LEAST_BATCHES = 3
"""Batches of either function without which nothing is known of the hop between them."""
NEWEST_BATCHES = 12
PARTED_SECONDS = 60.0
"""How long functions stay apart after a batch that failed while they were one query."""
CHEAP = 0.5
"""Functions part when the hop would cost less than this share of what made them one query."""
RECORDS = frozenset({Takes.PANDAS, Takes.ARROW})


def find_chains(pipeline: Pipeline) -> tuple[Group, ...]:
    """Find the functions that may be fused: linear neighbours with a topic that nobody else needs."""
    functions = pipeline.functions
    after = {first: second for first, second in _list_pairs(pipeline) if _may_fuse(pipeline, first, second)}
    chains = []
    for name in functions:
        if name in after and name not in after.values():
            chain = [name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(tuple(chain))
    return tuple(chains)


def _list_pairs(pipeline: Pipeline) -> Iterable[Pair]:
    """List writer and reader of every topic that has one of each, and whose reader reads nothing else."""
    functions = pipeline.functions.values()
    for first in functions:
        readers = [one for one in functions if first.writes in one.reads]
        writers = [one for one in functions if first.writes is not None and one.writes == first.writes]
        if len(readers) == len(writers) == 1 and readers[0].reads == (first.writes,):
            yield first.name, readers[0].name


def _may_fuse(pipeline: Pipeline, first: str, second: str) -> bool:
    """Tell whether one batch can do both: alike in form, no key to bring together, one place to write to."""
    before, after = pipeline.functions[first], pipeline.functions[second]
    assert before.writes is not None
    alike = before.takes is after.takes is Takes.DATAFRAME or {before.takes, after.takes} <= RECORDS
    places = [_place(pipeline, one) for one in (before, after)]
    kept = pipeline.topics[before.writes].kept
    return before.fuse and after.fuse and alike and not after.key and not kept and places[0] == places[1]


def _place(pipeline: Pipeline, function: Function) -> Location | None:
    """Return where a function writes its results and dead letters."""
    return (pipeline.topics[function.writes].at if function.writes else None) or pipeline.location


@dataclass(frozen=True, slots=True)
class Hop:
    """The topic between two neighbours: what it costs a record, beside the useful time of both in a batch."""

    cost_seconds: float
    useful_seconds: float

    def exceeds(self, share: float) -> bool:
        """Tell whether the hop costs more than this share of the useful time."""
        return self.cost_seconds > share * self.useful_seconds


def measure_hop(before: Sequence[BatchDone], after: Sequence[BatchDone], known: float | None) -> Hop | None:
    """Measure a hop over the newest batches; None while too little is known.

    It costs what a record spends between its arrival in the topic and the end of the second function's
    batch, without that function's useful time. Of functions that are fused it is what was `known` before.
    """
    newest = [batches[-NEWEST_BATCHES:] for batches in (before, after)]
    if min(map(len, newest)) < LEAST_BATCHES:
        return None
    useful = sum(fmean(one.useful_seconds for one in batches) for batches in newest)
    costs = [one.response_seconds - one.useful_seconds for one in newest[1] if not one.straight]
    measured = [max(0.0, cost) for cost in costs if math.isfinite(cost)]
    cost = fmean(measured) if len(measured) >= LEAST_BATCHES else known
    return None if cost is None else Hop(cost, useful)


def choose_groups(
    chains: Iterable[Group],
    hops: Mapping[Pair, Hop],
    fused: Collection[Pair],
    mode: FuseMode,
    share: float,
    apart: Collection[Pair] = (),
) -> tuple[Group, ...]:
    """Choose what runs as one query: runs of neighbours whose every hop costs too much.

    Neighbours that are fused stay so until the hop would cost clearly less; those `apart` are left alone.
    """

    def joins(pair: Pair) -> bool:
        if mode != "auto" or pair in apart:
            return mode == "always" and pair not in apart
        hop = hops.get(pair)
        if hop is None:
            return pair in fused
        return hop.exceeds(share * CHEAP if pair in fused else share)

    groups: list[Group] = []
    for chain in chains:
        run = [chain[0]]
        for pair in pairwise(chain):
            if not joins(pair):
                groups.append(tuple(run))
                run = []
            run.append(pair[1])
        groups.append(tuple(run))
    return tuple(group for group in groups if len(group) > 1)


class FusePlan:
    """Which functions are to run as one query: reviewed by the controller, asked by every batch."""

    def __init__(
        self, chains: Iterable[Group], mode: FuseMode, share: float, begun: Iterable[Group] = ()
    ) -> None:
        """`begun` are groups of the run before, which go on as they are."""
        self.chains, self._mode, self._share = tuple(chains), mode, share
        self._lock = threading.Lock()
        self._apart: dict[Pair, float] = {}
        self._costs: dict[Pair, float] = {}
        self._running: dict[str, Group] = {}
        before = {pair for group in begun for pair in pairwise(group)}
        self._groups = choose_groups(self.chains, {}, before, mode, share)

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups of two or more, as they are to run."""
        with self._lock:
            return self._groups

    def group_of(self, function: str) -> Group:
        """Return the group of a function; one alone is its own."""
        return next((group for group in self.groups if function in group), (function,))

    def choose_batch(self, function: str) -> Group:
        """Return the functions that a query's next batch is for.

        Only the first of a group serves the others. Their own queries still read what was written to their
        topics before, each for itself.
        """
        group = self.group_of(function)
        return group if group[0] == function else (function,)

    def list_behind(self, function: str) -> Group:
        """List a function and those behind it with which it may ever be fused."""
        chain = next((chain for chain in self.chains if function in chain), (function,))
        return chain[chain.index(function) :]

    def note_batch(self, group: Group) -> None:
        """Note that a batch of these functions has ended as one query."""
        with self._lock:
            self._running[group[0]] = group

    def is_passed_by(self, function: str) -> bool:
        """Tell whether a function's own query has nothing to do: the one before passes records straight on.

        Only once a batch of that has ended: the one before it may still have written to the topic.
        """
        group = self.group_of(function)
        with self._lock:
            return function != group[0] and self._running.get(group[0]) == group

    def part(self, group: Group, now: float) -> None:
        """Part functions for a while, since a batch of them as one query has failed."""
        with self._lock:
            self._apart |= dict.fromkeys(pairwise(group), now + PARTED_SECONDS)
            self._groups = tuple(one for one in self._groups if one[0] != group[0])
            self._running.pop(group[0], None)

    def review(
        self, now: float, batches: Callable[[str], Sequence[BatchDone]], behind: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Choose anew, and say what changes and why; nothing joins a function that is `behind`."""
        hops = {pair: hop for pair in self._pairs() if (hop := self._measure(pair, batches)) is not None}
        with self._lock:
            held = self._groups
            fused = {pair for group in held for pair in pairwise(group)}
            late = {pair for pair in self._pairs() if pair not in fused and set(pair) & set(behind)}
            self._apart = {pair: until for pair, until in self._apart.items() if until > now}
            apart = {*self._apart, *late}
            self._groups = choose_groups(self.chains, hops, fused, self._mode, self._share, apart)
            new = self._groups
        return tuple(_tell_change(held, new, hops)) if new != held else ()

    def _pairs(self) -> list[Pair]:
        return [pair for chain in self.chains for pair in pairwise(chain)]

    def _measure(self, pair: Pair, batches: Callable[[str], Sequence[BatchDone]]) -> Hop | None:
        hop = measure_hop(batches(pair[0]), batches(pair[1]), self._costs.get(pair))
        if hop is not None:
            self._costs[pair] = hop.cost_seconds
        return hop


def _tell_change(held: tuple[Group, ...], new: tuple[Group, ...], hops: Mapping[Pair, Hop]) -> Iterable[str]:
    before, after = ({pair for group in groups for pair in pairwise(group)} for groups in (held, new))
    for pair in sorted(before ^ after):
        how = "run as one query" if pair in after else "run as two queries again"
        hop = hops.get(pair)
        cost = f"the topic between them costs {hop.cost_seconds:.2g} s" if hop else "as asked for"
        beside = f" beside {hop.useful_seconds:.2g} s of work" if hop else ""
        yield f"{pair[0]} and {pair[1]} {how}: {cost}{beside}"


class BatchModes:
    """As which group each batch of a query runs; a batch that is run again runs as it did before."""

    def __init__(
        self,
        function: str,
        marks: Mapping[int, Group],
        begun: int,
        write: Callable[[int, Group], None] = lambda _batch, _group: None,
    ) -> None:
        """`marks`: batch from which on → group. `begun`: the newest batch that had begun, -1 if none."""
        self._function, self._marks, self._begun, self._write = function, dict(marks), begun, write

    @property
    def newest(self) -> Group:
        """The group that was written down last."""
        return self._find(max(self._marks, default=0))

    def choose(self, batch_id: int, wanted: Group) -> Group:
        """Return how a batch runs; a change is written down before the batch begins."""
        found = self._find(batch_id)
        if batch_id > self._begun:
            self._begun = batch_id
            if wanted != found:
                self.change(batch_id, wanted)
            return wanted
        return found

    def change(self, batch_id: int, group: Group) -> None:
        """Write down that this batch and those after it run as another group."""
        self._write(batch_id, group)
        self._marks[batch_id] = group

    def _find(self, batch_id: int) -> Group:
        known = [batch for batch in self._marks if batch <= batch_id]
        return self._marks[max(known)] if known else (self._function,)
