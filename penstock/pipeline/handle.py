"""The handle of a pipeline: whether this process leads it, how it stands, scaling by hand, stopping."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ActionFailed, BadInput, NotLeading, PenstockError
from penstock.journal.leading import LeaseKeeper
from penstock.journal.leases import Lease
from penstock.pipeline.definition import Pipeline
from penstock.pipeline.metrics import tell_as_application
from penstock.runtime.control import PIPELINES, ControlServer, secure_directory
from penstock.runtime.heartbeat import Heartbeat, Watchdog
from penstock.runtime.telemetry.outlets import serve_metrics
from penstock.runtime.telemetry.server import MetricsServer

if TYPE_CHECKING:
    from penstock.pipeline.batches import BatchDone
    from penstock.pipeline.spark_term import Queries, Term
    from penstock.settings.model import Settings

log = logging.getLogger(__name__)

TICK_SECONDS = 0.5
STOP_SECONDS = 30.0
"""How long a stop waits for what the controller is at, which may be the start of a query."""
START_SECONDS = 60.0
"""How long the loop may be at one thing, as the start of many queries, before it counts as hanging."""


class PipelineHandle:
    """Runs the pipeline while this process leads, and stands by while another does."""

    def __init__(
        self,
        pipeline: Pipeline,
        keeper: LeaseKeeper,
        begin_term: Callable[[], Term],
        settings: Settings,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = pipeline.name
        self._pipeline, self._layout = pipeline, pipeline.layout()
        self._keeper, self._begin_term, self._settings, self._close = keeper, begin_term, settings, close
        self._term: Term | None = None
        self._last: Term | None = None
        self._led_by: Lease | None = None
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._error: str | None = None
        self._broken: str | None = None
        self._thread = threading.Thread(target=self._steer, name=f"pipeline-{self.name}", daemon=True)
        self._heart = Heartbeat(settings.manager.policy_interval, least=START_SECONDS)
        self._watchdog = Watchdog(self._heart, self.name, self._thread)
        self._control: ControlServer | None = None
        self._metrics: MetricsServer | None = None

    def begin(self) -> PipelineHandle:
        """Lead if nobody does, and start the controller's thread; what cannot be started is raised."""
        self._keeper.start()
        try:
            if self._keeper.lease is not None:
                self._take_over(self._keeper.lease)
            else:
                log.info("%s: standing by; %s", self.name, self._leader_in_words())
        except Exception:
            self._keeper.stop()
            self._close()
            raise
        self._heart.beat()
        self._thread.start()
        self._watchdog.start()
        return self

    @property
    def running(self) -> bool:
        """Whether the pipeline was started here and not stopped."""
        return not self._stopped.is_set()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop; it may take a batch to do so."""
        return self._stopping.is_set()

    @property
    def leads(self) -> bool:
        """Whether this process runs the functions; others stand by."""
        return self._term is not None

    @property
    def metrics_url(self) -> str | None:
        """Where the metrics are served, while this process leads and the settings name an address."""
        return self._metrics.url if self._metrics is not None else None

    @property
    def queries(self) -> Queries:
        """Function → its query, while this process leads."""
        return self._shown.queries if self._shown is not None else {}

    def status(self) -> dict[str, Any]:
        """Return how every function stands, and what was decided lately, as plain data."""
        term, reads, writes = self._shown, self._layout.reads, self._layout.writes
        return {
            "pipeline": self.name,
            "application": self._keeper.leadership.holder,
            "policy": self._settings.run.policy,
            "mode": self._settings.run.mode,
            "running": self.running,
            "leads": self.leads,
            "leader": self._keeper.leadership.leader,
            "now": time.time(),
            "functions": {
                name: term.function(name) if term else {"reads": list(reads[name]), "writes": writes[name]}
                for name in self._layout.functions
            },
            "fusing": term.fusing if term is not None else {"groups": [], "changes": []},
            "decisions": term.decisions() if term is not None else [],
            "totals": term.totals if term is not None else {},
            "heartbeat": self._heart.plain(),
            "error": self._broken
            or (self._heart.describe() if self._thread.is_alive() else None)
            or self._error,
        }

    def batches(self, function: str) -> tuple[BatchDone, ...]:
        """Return the newest batches of a function, each with the parallelism that it ran at."""
        term = self._shown or self._leading()
        return term.batches(function)

    def scale(self, function: str, parallelism: int | None) -> int:
        """Set a function by hand, from its next batch on, and keep it there; None gives it back."""
        size = self._leading().scale(function, parallelism)
        log.info("%s.%s: %s", self.name, function, f"pinned at {size}" if parallelism else "given back")
        return size

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the pipeline is stopped; ActionFailed names a function that has failed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._stopped.wait(0.2):
            term = self._term
            failed = [self._broken] if self._broken else term.failures() if term is not None else []
            if failed:
                raise ActionFailed("; ".join(failed))
            if deadline is not None and time.monotonic() > deadline:
                return False
        return True

    def stop(self) -> None:
        """Stop all queries and let another lead; the next run goes on from their checkpoints."""
        self._stopping.set()
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(timeout=STOP_SECONDS)
        self._step_down()
        self._keeper.stop()
        if not self._stopped.is_set():
            self._close()
        self._stopped.set()

    @property
    def _shown(self) -> Term | None:
        """After a stop, what was there before it can still be looked at."""
        return self._last if self._stopped.is_set() else self._term

    def _leading(self) -> Term:
        if self._term is None:
            raise NotLeading(f"{self.name} is not run by this process; {self._leader_in_words()}")
        return self._term

    def _leader_in_words(self) -> str:
        leader = self._keeper.leadership.leader
        return f"{leader} leads" if leader else "who leads is not known yet"

    def _steer(self) -> None:
        seen_at = time.monotonic()
        while not self._stopping.is_set() and self._broken is None:
            slept, seen_at = time.monotonic() - seen_at, time.monotonic()
            try:
                if slept > self._keeper.leadership.patience / 2:
                    self._keeper.refresh()
                self._step(self._keeper.lease)
            except Exception as problem:
                error = f"the controller failed: {problem}"
                if error != self._error:
                    log.exception("%s: the controller failed in a cycle; the functions run on", self.name)
                self._error = error
            self._heart.beat()
            self._stopping.wait(min(TICK_SECONDS, self._settings.manager.policy_interval / 2))
        self._watchdog.stop()

    def _step(self, lease: Lease | None) -> None:
        """Begin, go on, or end, as the lease says."""
        if self._led_by is not None and (lease is None or lease.term != self._led_by.term):
            log.warning("%s: no longer leading, so the functions stop here", self.name)
            self._step_down()
        elif self._term is not None and self._term.gone:
            self._keeper.stop()  # first: whoever hears of the end may start another at once
            self._broken = f"{self.name} has ended: Spark was stopped"
        elif self._term is not None:
            cycle = self._term.tick(time.time())
            if cycle.error or cycle.verdict is not None or cycle.window is not None:
                self._error = cycle.error
        elif lease is not None:
            try:
                self._take_over(lease)
            except Exception as problem:
                log.exception("%s: leading, but the functions cannot be started", self.name)
                self._keeper.stop()
                self._broken = f"{self.name} cannot be started: {problem}"

    def _take_over(self, lease: Lease) -> None:
        self._term, self._led_by = self._begin_term(), lease
        log.info("%s: leading, term %d", self.name, lease.term)
        self._listen()

    def _step_down(self) -> None:
        term, self._term, self._led_by = self._term, None, None
        self._last = term or self._last
        for door in (self._control, self._metrics):
            if door is not None:
                door.close()
        self._control = self._metrics = None
        if term is not None:
            term.leave()
            term.stop()

    def _listen(self) -> None:
        """Open the doors of the one who leads: another of the same settings may stand by on this machine."""
        try:
            self._metrics = serve_metrics(self._settings, lambda: tell_as_application(self.status()))
        except (PenstockError, OSError) as error:
            log.warning("%s: %s", self.name, error)
        if not self._settings.run.control_socket:
            return
        try:
            directory = Path(self._settings.run.runtime_directory)
            secure_directory(directory)
            self._control = ControlServer(directory / PIPELINES, self.name, self._answer)
        except (PenstockError, OSError) as error:
            log.warning("%s: %s", self.name, error)

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match command:
            case "hello":
                return {"application": self.name, "name": self.name}
            case "health":
                return {"application": self.name, "name": self.name, **self._heart.plain()}
            case "status":
                return {"status": self.status()}
            case "scale":
                size = self.scale(str(request.get("function")), request.get("parallelism"))
                return {"function": request.get("function"), "parallelism": size}
            case "stop":
                threading.Thread(target=self.stop, name="pipeline-stop", daemon=True).start()
                return {"stopping": True}
        raise BadInput(f"unknown command {command!r}; known: health, hello, scale, status, stop")
