"""Starts a pipeline: checks all of it, then runs it while this process leads, and stands by otherwise."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from penstock.act.actuator import ExecutorActuator
from penstock.act.spark_executors import SparkExecutors
from penstock.decide.limits import UnitLimits, WithinLimits
from penstock.decide.surroundings import Surroundings
from penstock.errors import BadInput, JournalUnavailable, Unsupported
from penstock.journal.leading import Leadership, LeaseKeeper
from penstock.journal.store import Journal, journal_at
from penstock.migrate.spark_mover import SparkMover
from penstock.observe.services.board import BOARD
from penstock.observe.spark_session import can_change_executors, check_supported, start_session
from penstock.observe.spark_status import SparkStatus, executor_state
from penstock.pipeline.actuator import BoardActuator
from penstock.pipeline.board import Board, SizeMemory
from penstock.pipeline.definition import Function, Pipeline, Takes
from penstock.pipeline.fusing import BatchModes, FusePlan
from penstock.pipeline.handle import PipelineHandle
from penstock.pipeline.leader import close_left_open
from penstock.pipeline.monitor import Monitor
from penstock.pipeline.spark_fusing import plan_fusing
from penstock.pipeline.spark_query import FunctionQuery
from penstock.pipeline.spark_schemas import SparkLooker, check_all, check_start, complete
from penstock.pipeline.spark_term import ExistingQuery, OutsideReadings, PipelineSource, Queries, Term
from penstock.pipeline.state_moves import StateSpreader
from penstock.pipeline.topics import Files, Layout
from penstock.plugins.finding import find_policy
from penstock.runtime.assembly import assemble_loop, assemble_policy, read_settings
from penstock.runtime.loop import Loop
from penstock.runtime.ports import Actuator
from penstock.settings.model import Settings
from penstock.units.fields import parse_duration

log = logging.getLogger(__name__)

LEASE = "8s"
"""A leader that has given no sign for so long is replaced."""
LEAST_LEASE_SECONDS = 1.0
"""A leader cannot give signs more often than a few times a second."""
MOST_EXECUTORS = 1000
BUSY_SECONDS = 30.0
"""A function that has ended no batch for so long cannot move its state, and need not."""


@dataclass(frozen=True, slots=True)
class Undertaking:
    """All that a run needs, checked; kept for the moment at which this process leads."""

    pipeline: Pipeline
    spark: SparkSession
    settings: Settings
    checkpoints: str
    period: float
    start_at: Mapping[str, int] | None
    executors: tuple[int, int] | None
    """Least and most, where they follow the instances."""
    journal: Journal
    keeper: LeaseKeeper


def run(  # noqa: PLR0913
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    policy: str | None = None,
    settings: Mapping[str, object] | Settings | None = None,
    checkpoints: str | None = None,
    trigger: object = "1s",
    start_at: Mapping[str, int] | None = None,
    executors: bool | tuple[int, int] = False,
    lease: object = LEASE,
) -> PipelineHandle:
    """Start every function and the controller; what is wrong is said before anything starts.

    `checkpoints` is a directory (default: beside file topics), `trigger` how often each function looks for
    records, `start_at` the parallelism to begin with (default: as the last run ended, or the least). With
    `executors`, or limits for them, these follow the sum of all instances; one pipeline of an application
    may do that. While another process with the same journal and checkpoints leads, this one stands by, and
    takes over when that one has given no sign for as long as `lease`.
    """
    check_supported(spark)
    complete(pipeline, SparkLooker(spark))
    pipeline.check()
    effective = _load_settings(pipeline, spark, policy, settings)
    entry = find_policy(effective.run.policy)
    entry.check_place("pipeline run")
    entry.make(effective)
    period, patience = _parse_seconds("trigger", trigger), _parse_seconds("lease", lease, LEAST_LEASE_SECONDS)
    places = _locate_checkpoints(pipeline, checkpoints)
    check_all(pipeline, spark)
    check_start(pipeline, start_at or {})
    bounds = _parse_executors(executors)
    obstacle = can_change_executors(spark) if bounds and not effective.run.only_observes else None
    if obstacle is not None:
        raise Unsupported(obstacle)
    journal = journal_at(effective.run.journal, retained=effective.run.retained_observations)
    application = f"{spark.sparkContext.applicationId}.{pipeline.name}"
    keeper = LeaseKeeper(Leadership(journal.leases, f"pipeline {places}", application, patience))
    led = journal.bind_to(lambda: keeper.lease)
    work = Undertaking(pipeline, spark, effective, places, period, start_at, bounds, led, keeper)
    return PipelineHandle(pipeline, keeper, lambda: begin_term(work), effective, journal.close).begin()


def begin_term(work: Undertaking) -> Term:
    """Start all queries with the sizes that they had last, and the loop over them."""
    pipeline, mover = work.pipeline, _make_mover(work)
    limits = {name: _limits(one, mover is not None) for name, one in pipeline.functions.items()}
    fixed = frozenset(name for name, (least, most) in limits.items() if least == most)
    memory = SizeMemory(work.journal, work.keeper.leadership.name)
    plan, modes = plan_fusing(pipeline, work.spark, work.settings, work.checkpoints)
    board, layout = _make_board(work, limits, fixed, memory, plan), pipeline.layout(fixed)
    own = {name: work.period for name, one in pipeline.functions.items() if one.takes is not Takes.QUERY}
    monitor = Monitor(pipeline.name, layout, own)
    queries = _start_queries(work, layout, board, monitor, modes)
    try:
        spreader = _make_spreader(work, mover, board, monitor, queries) if mover is not None else None
        actuator = _make_actuator(work, board, spreader, mover)
        loop = _make_loop(work, layout, board, monitor, queries, actuator, spreader)
        close = mover.close if mover is not None else None
        return Term(pipeline, queries, board, monitor, loop, memory, work.executors is not None, close)
    except Exception:
        for query in queries.values():
            query.stop()
        raise


def _make_loop(
    work: Undertaking,
    layout: Layout,
    board: Board,
    monitor: Monitor,
    queries: Queries,
    actuator: BoardActuator | None,
    spreader: StateSpreader | None,
) -> Loop:
    readings = OutsideReadings(work.spark, layout, queries, work.period)
    policy = assemble_policy(work.settings, work.journal, work.pipeline.name, Surroundings(BOARD.newest))
    _close_left_open(work, board)
    return assemble_loop(
        work.keeper.leadership.holder,
        work.settings,
        work.journal,
        PipelineSource(board, monitor, readings, queries),
        WithinLimits(policy, board.limits, lambda: board.pinned),
        actuator,
        spreader,
    )


def _make_board(
    work: Undertaking, limits: UnitLimits, fixed: frozenset[str], memory: SizeMemory, plan: FusePlan
) -> Board:
    known = memory.recall()
    board = Board(limits, {**known.wanted, **(work.start_at or {})}, fixed, plan)
    if not work.start_at:
        board.restore(known.pinned)
    return board


def _start_queries(
    work: Undertaking, layout: Layout, board: Board, monitor: Monitor, modes: Mapping[str, BatchModes]
) -> Queries:
    """Return the user's own queries as they are, and one for every other function, started."""
    functions = work.pipeline.functions
    existing = {
        name: ExistingQuery(one, monitor) for name, one in functions.items() if one.takes is Takes.QUERY
    }
    own = {
        name: FunctionQuery(work.spark, work.pipeline, functions[name], board, monitor, modes[name])
        for name in layout.functions
        if name not in existing
    }
    _start(own, work.checkpoints, work.period)
    return {name: existing.get(name) or own[name] for name in layout.functions}


def _make_mover(work: Undertaking) -> SparkMover | None:
    """Return what moves state; None where no function has any, or where it cannot be moved."""
    if not any(one.takes is Takes.KEYED and one.least < one.most for one in work.pipeline.functions.values()):
        return None
    if work.settings.run.only_observes or can_change_executors(work.spark) is not None:
        return None
    mover = SparkMover(work.spark, work.settings.migration, lambda _query: ())
    return mover if mover.obstacle() is None else None


def _make_spreader(
    work: Undertaking, mover: SparkMover, board: Board, monitor: Monitor, queries: Queries
) -> StateSpreader:
    keyed = [name for name, one in work.pipeline.functions.items() if one.takes is Takes.KEYED]

    def is_busy(name: str) -> bool:
        batches = monitor.batches(name)
        return bool(batches) and batches[-1].end > time.time() - BUSY_SECONDS

    return StateSpreader(
        mover,
        board,
        lambda: {str(queries[name].query.id): name for name in keyed},
        _count_slots(work.spark),
        is_busy,
        work.settings.migration.strategy,
    )


def _make_actuator(
    work: Undertaking, board: Board, spreader: StateSpreader | None, mover: SparkMover | None
) -> BoardActuator | None:
    """Return what changes parallelism; observing only means that there is none."""
    if work.settings.run.only_observes:
        return None
    executors: Actuator | None = None
    if work.executors is not None:
        bins = spreader.bins if spreader is not None else dict
        executors = ExecutorActuator(SparkExecutors(work.spark), work.settings.scaling, bins, mover)
    return BoardActuator(board, executors, _count_slots(work.spark), spreader, work.executors)


def _count_slots(spark: SparkSession) -> int:
    """Count the slots of an executor by those that are there: the setting may be left out."""
    said = int(spark.conf.get("spark.executor.cores", "1") or 1)
    return max((executor_state(one, {}).cores for one in SparkStatus(spark).executors()), default=said)


def _close_left_open(work: Undertaking, board: Board) -> None:
    try:
        close_left_open(work.journal, work.keeper.leadership.before, board.wanted, time.time())
    except JournalUnavailable as error:
        log.warning("%s: what the leader before left open stays so: %s", work.pipeline.name, error)


def _start(queries: Mapping[str, FunctionQuery], checkpoints: str, period: float) -> None:
    """Start all queries or none."""
    try:
        for name, one in queries.items():
            _send_by_value(one.function)
            one.start(f"{checkpoints}/{name}", period)
    except Exception:
        for one in queries.values():
            one.stop()
        raise


def _load_settings(
    pipeline: Pipeline,
    spark: SparkSession,
    policy: str | None,
    given: Mapping[str, object] | Settings | None,
) -> Settings:
    """Put the functions' limits and latency targets into the settings, where policies look for them."""
    functions = pipeline.functions.values()
    targets = {one.name: one.latency_target for one in functions if one.latency_target is not None}
    own: dict[str, object] = {"max_executors": max(one.most for one in functions)}
    if targets:
        own["queueing_operator_targets"] = targets
    chosen: dict[str, object] = {} if policy is None else {"policy": policy}
    if isinstance(given, Settings):
        return read_settings(spark, given, {**own, **chosen})
    return read_settings(spark, {**own, **(given or {})}, chosen)


def _parse_seconds(option: str, given: object, least: float = 0.0) -> float:
    try:
        seconds = parse_duration(given)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from None
    if seconds < least:
        raise BadInput(f"{option} is {given!r}, less than {least:g} s")
    return seconds


def _parse_executors(given: bool | tuple[int, int]) -> tuple[int, int] | None:
    if isinstance(given, bool):
        return (1, MOST_EXECUTORS) if given else None
    pair = tuple(given)
    if len(pair) != 2 or not all(isinstance(one, int) for one in pair) or not 1 <= pair[0] <= pair[1]:
        raise BadInput(f"executors {given!r} is not True, or (least, most) from 1 on")
    return pair[0], pair[1]


def _limits(function: Function, state_moves: bool) -> tuple[int, int]:
    """Return the limits of a function; state that cannot be moved stays on all executors."""
    fixed = function.takes is Takes.KEYED and not state_moves
    return (function.most if fixed else function.least), function.most


def _locate_checkpoints(pipeline: Pipeline, given: str | None) -> str:
    if given is not None:
        return f"{_absolute(given)}/{pipeline.name}"
    if isinstance(pipeline.location, Files):
        return f"{_absolute(pipeline.location.root)}/_penstock/checkpoints/{pipeline.name}"
    raise BadInput(f"{pipeline.name}: checkpoints= is needed where topics are no files")


def _absolute(place: str) -> str:
    """Return the name that another process finds for it too, wherever that was started."""
    return place if "://" in place else str(Path(place).absolute())


def _send_by_value(function: Function) -> None:
    """Let functions travel whole: workers have no copy of the user's own modules."""
    module = sys.modules.get(function.call.__module__ or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return
    if "site-packages" not in file and module.__name__.partition(".")[0] != "penstock":
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def start_pipeline_session(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Start a session in which functions share the slots fairly."""
    spark = start_session(name, {"spark.scheduler.mode": "FAIR", **conf}, master)
    spark.sparkContext.setLogLevel("ERROR")
    return spark
