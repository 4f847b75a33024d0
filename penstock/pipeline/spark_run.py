"""A pipeline at work: its queries, the controller that sizes them, and the handle that steers both."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from penstock.act.spark_executors import SparkActuator
from penstock.control import ControlServer, secure_directory
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.manager import ScalingManager
from penstock.decide.policy import Policy
from penstock.decide.registry import make_policy
from penstock.durations import parse_duration
from penstock.errors import ActionFailed, BadInput, PenstockError, Unsupported
from penstock.journal.store import journal_at
from penstock.loop import Loop, LoopSettings
from penstock.observe.spark_session import can_change_executors, check_supported
from penstock.pipeline.board import Board, BoardActuator
from penstock.pipeline.definition import Function, Pipeline, Takes
from penstock.pipeline.limits import WithinLimits
from penstock.pipeline.monitor import BatchDone, Monitor
from penstock.pipeline.spark_existing import ExistingQuery
from penstock.pipeline.spark_query import FunctionQuery
from penstock.pipeline.spark_readings import OutsideReadings
from penstock.pipeline.topics import Files, Stream
from penstock.ports import Actuator
from penstock.remembering import remembering
from penstock.settings import Settings, load_settings

log = logging.getLogger(__name__)

TICK_SECONDS = 0.5
SOCKETS = "pipelines"
"""Where pipelines listen, beside the sockets of autopilots."""


class PipelineHandle:
    """A running pipeline: how it stands, setting a function by hand, stopping it."""

    def __init__(
        self,
        pipeline: Pipeline,
        queries: Mapping[str, FunctionQuery | ExistingQuery],
        board: Board,
        monitor: Monitor,
        loop: Loop,
        settings: Settings,
    ) -> None:
        self.name, self.queries = pipeline.name, queries
        self._pipeline, self._layout = pipeline, pipeline.layout()
        self._board, self._monitor, self._loop, self._settings = board, monitor, loop, settings
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._error: str | None = None
        self._thread = threading.Thread(target=self._steer, name=f"pipeline-{self.name}", daemon=True)
        self._control: ControlServer | None = None

    def begin(self) -> PipelineHandle:
        """Start the controller's thread, and listen for commands."""
        if self._settings.control_socket:
            try:
                directory = Path(self._settings.runtime_directory)
                secure_directory(directory)
                self._control = ControlServer(directory / SOCKETS, self.name, self._answer)
            except (PenstockError, OSError) as error:
                log.warning("%s: %s", self.name, error)
        self._thread.start()
        return self

    @property
    def running(self) -> bool:
        """Whether the pipeline was started and not stopped."""
        return not self._stopped.is_set()

    def status(self) -> dict[str, Any]:
        """How every function stands, and what was decided lately, as plain data."""
        timeline = self._loop.timeline
        return {
            "pipeline": self.name,
            "policy": self._loop.policy.name,
            "running": self.running,
            "now": time.time(),
            "functions": {name: self._function(name) for name in self._layout.functions},
            "decisions": [asdict(one) for one in timeline.decisions[-10:]],
            "error": self._error,
        }

    def batches(self, function: str) -> tuple[BatchDone, ...]:
        """The newest batches of a function, each with the parallelism that it ran at."""
        return self._monitor.batches(function)

    def scale(self, function: str, parallelism: int | None) -> int:
        """Set a function by hand, from its next batch on, and keep it there; None gives it back."""
        size = self._board.pin(function, parallelism)
        log.info("%s.%s: %s", self.name, function, f"pinned at {size}" if parallelism else "given back")
        return size

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the pipeline is stopped; ActionFailed names a function that has failed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._stopped.wait(0.2):
            failed = {name: why for name, one in self.queries.items() if (why := one.failure())}
            if failed:
                raise ActionFailed("; ".join(failed.values()))
            if deadline is not None and time.monotonic() > deadline:
                return False
        return True

    def stop(self) -> None:
        """Stop all queries; the next run goes on from their checkpoints. May be called twice."""
        self._stopping.set()
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(timeout=5)
        stoppers = [threading.Thread(target=one.stop, daemon=True) for one in self.queries.values()]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        if self._control is not None:
            self._control.close()
        self._stopped.set()

    def _function(self, name: str) -> dict[str, Any]:
        figures = self._monitor.figures().get(name)
        least, most = self._board.limits[name]
        return {
            "reads": list(self._layout.reads[name]),
            "writes": self._layout.writes[name],
            "parallelism": self._board.in_effect()[name],
            "least": least,
            "most": most,
            "pinned": name in self._board.pinned(),
            "latency_target": self._pipeline.functions[name].latency_target,
            **self._monitor.counted(name),
            **(asdict(figures) if figures is not None else {}),
            "error": self.queries[name].failure(),
        }

    def _steer(self) -> None:
        try:
            while not self._stopping.is_set():
                cycle = self._loop.tick(time.time())
                if cycle.error or cycle.verdict is not None or cycle.window is not None:
                    self._error = cycle.error
                self._stopping.wait(min(TICK_SECONDS, self._settings.policy_interval / 2))
        except Exception:
            log.exception("%s: the controller has stopped; the functions run on", self.name)
        finally:
            self._loop.leave(time.time())

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match command:
            case "hello":
                return {"application": self.name, "name": self.name}
            case "status":
                return {"status": self.status()}
            case "scale":
                size = self.scale(str(request.get("function")), request.get("parallelism"))
                return {"function": request.get("function"), "parallelism": size}
            case "stop":
                threading.Thread(target=self.stop, name="pipeline-stop", daemon=True).start()
                return {"stopping": True}
        raise BadInput(f"unknown command {command!r}; known: hello, scale, status, stop")


class PipelineSource:
    """The windows that the loop sees of a pipeline."""

    def __init__(
        self, board: Board, monitor: Monitor, readings: OutsideReadings, existing: Sequence[ExistingQuery]
    ) -> None:
        self._board, self._monitor, self._readings, self._existing = board, monitor, readings, existing
        self._last = time.time()

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """The window since the last one."""
        for one in self._existing:
            one.poll()
        readings = self._readings.read(self._last, now)
        seen = self._monitor.observe(now, self._board.wanted(), readings)
        if isinstance(seen, ApplicationWindow):
            self._last = now
        return seen


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    policy: str | None = None,
    settings: Mapping[str, object] | Settings | None = None,
    checkpoints: str | None = None,
    trigger: object = "1s",
    start_at: Mapping[str, int] | None = None,
    executors: bool = False,
) -> PipelineHandle:
    """Start every function and the controller; what is wrong is said before anything starts.

    `checkpoints` is a directory (default: beside file topics), `trigger` how often each function looks for
    records, `start_at` the parallelism to begin with (default: the least). With `executors` these follow the
    sum of all instances; one pipeline of an application may do that.
    """
    check_supported(spark)
    layout = pipeline.check()
    effective = _settings(pipeline, spark, policy, settings)
    period, places = _period(trigger), _checkpoints(pipeline, checkpoints)
    _check_dead_letters(pipeline)
    limits = {name: _limits(one) for name, one in pipeline.functions.items()}
    fixed = frozenset(name for name, (least, most) in limits.items() if least == most)
    board, monitor = Board(limits, start_at or {}, fixed), Monitor(pipeline.name, layout)
    policy_itself, actuator = make_policy(effective), _actuator(spark, effective, board, executors)
    existing = {
        name: ExistingQuery(one, monitor)
        for name, one in pipeline.functions.items()
        if one.takes is Takes.QUERY
    }
    own = {
        name: FunctionQuery(spark, pipeline, pipeline.functions[name], board, monitor)
        for name in layout.functions
        if name not in existing
    }
    _start(own, places, period)
    queries = {name: existing.get(name) or own[name] for name in layout.functions}
    readings = OutsideReadings(spark, layout, queries, period)
    source = PipelineSource(board, monitor, readings, list(existing.values()))
    loop = _loop(pipeline.name, spark, effective, source, board, policy_itself, actuator)
    return PipelineHandle(pipeline, queries, board, monitor, loop, effective).begin()


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


def _loop(
    name: str,
    spark: SparkSession,
    settings: Settings,
    source: PipelineSource,
    board: Board,
    policy: Policy,
    actuator: BoardActuator | None,
) -> Loop:
    journal = journal_at(settings.journal, retained=settings.retained_observations)
    return Loop(
        f"{spark.sparkContext.applicationId}.{name}",
        source,
        WithinLimits(remembering(policy, journal, name), board.limits, board.pinned),
        ScalingManager(settings.manager()),
        journal,
        actuator,
        LoopSettings(policy_interval=settings.policy_interval),
    )


def _actuator(spark: SparkSession, settings: Settings, board: Board, follow: bool) -> BoardActuator | None:
    """What changes parallelism; observing only means that there is none."""
    if settings.mode == "observe":
        return None
    obstacle = can_change_executors(spark) if follow else None
    if obstacle is not None:
        raise Unsupported(obstacle)
    executors: Actuator | None = SparkActuator(spark, settings) if follow else None
    return BoardActuator(board, executors, int(spark.conf.get("spark.executor.cores", "1") or 1))


def _settings(
    pipeline: Pipeline,
    spark: SparkSession,
    policy: str | None,
    given: Mapping[str, object] | Settings | None,
) -> Settings:
    """The settings, with the limits and latency targets of the functions put where policies look for them."""
    functions = pipeline.functions.values()
    targets = {one.name: one.latency_target for one in functions if one.latency_target is not None}
    own: dict[str, object] = {"max_executors": max(one.most for one in functions)}
    if targets:
        own["queueing_operator_targets"] = targets
    chosen: dict[str, object] = {} if policy is None else {"policy": policy}
    if isinstance(given, Settings):
        return given.model_copy(update={**own, **chosen})
    spark_conf = dict(spark.sparkContext.getConf().getAll())
    return load_settings(None, spark_conf=spark_conf, arguments={**own, **(given or {}), **chosen})


def _period(trigger: object) -> float:
    try:
        return parse_duration(trigger)
    except ValueError as error:
        raise BadInput(f"trigger: {error}") from None


def _limits(function: Function) -> tuple[int, int]:
    stateful = function.takes is Takes.KEYED
    return (function.most if stateful else function.least), function.most


def _checkpoints(pipeline: Pipeline, given: str | None) -> str:
    if given is not None:
        return f"{given}/{pipeline.name}"
    if isinstance(pipeline.location, Files):
        return f"{pipeline.location.root}/_penstock/checkpoints/{pipeline.name}"
    raise BadInput(f"{pipeline.name}: checkpoints= is needed where topics are no files")


def _check_dead_letters(pipeline: Pipeline) -> None:
    """A function that writes nothing needs a place for its dead letters all the same."""
    for one in pipeline.functions.values():
        if (
            one.writes is None
            and one.takes is not Takes.QUERY
            and (pipeline.location is None or isinstance(pipeline.location, Stream))
        ):
            raise BadInput(
                f"{pipeline.name}: function {one.name!r} has no place for dead letters; give topics="
            )


def _send_by_value(function: Function) -> None:
    """Workers have no copy of the user's own modules, so their functions travel whole."""
    module = sys.modules.get(function.call.__module__ or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return
    if "site-packages" not in file and module.__name__.partition(".")[0] != "penstock":
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
