"""All outlets of an autopilot, opened and closed with it; one that does not work is told and left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import PenstockError
from penstock.runtime.telemetry.events import Event, Narrator, tell_heartbeat
from penstock.runtime.telemetry.exposition import expose
from penstock.runtime.telemetry.server import MetricsServer, read_token
from penstock.runtime.telemetry.spans import SpanTeller
from penstock.runtime.telemetry.webhooks import Courier, Notifier, describe_hooks, read_webhooks

if TYPE_CHECKING:
    from penstock.runtime.loop import Cycle
    from penstock.settings.model import Settings

log = logging.getLogger(__name__)

Opened = TypeVar("Opened")


class Outlets:
    """Where an autopilot tells of itself, as its settings say; what does not work is in `notes`."""

    def __init__(
        self, settings: Settings, application: str, name: str, tell_status: Callable[[], Mapping[str, Any]]
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self._application, self._narrator = application, Narrator()
        who = {"application": application, "name": name}
        self._server = self._try(lambda: serve_metrics(settings, tell_status))
        self._notifier = self._try(lambda: _open_notifier(settings, who))
        self._spans = self._try(lambda: _open_spans(settings, who))

    @property
    def metrics_url(self) -> str | None:
        """Where the metrics are served, also where the port was left to the system."""
        return self._server.url if self._server is not None else None

    def notice(self, cycle: Cycle) -> None:
        """Tell what happened in a cycle; returns at once, and raises nothing."""
        try:
            for event in self._narrator.hear(cycle):
                self._tell(event)
        except Exception:
            log.warning("%s: a cycle could not be told", self._application, exc_info=True)

    def tell_hang(self, hangs: str | None) -> None:
        """Tell that the loop hangs, or goes on; called by whoever listens to its heartbeat."""
        try:
            self._tell(tell_heartbeat(time.time(), hangs))
        except Exception:
            log.warning("%s: a heartbeat could not be told", self._application, exc_info=True)

    def notifications(self) -> dict[str, int]:
        """Return what became of notifications."""
        return self._notifier.counts() if self._notifier is not None else {}

    def close(self) -> None:
        """Close them all, within seconds."""
        for outlet in (self._server, self._notifier, self._spans):
            if outlet is not None:
                outlet.close()

    def _tell(self, event: Event) -> None:
        for outlet in (self._notifier, self._spans):
            if outlet is not None:
                outlet.put(event)

    def _try(self, opening: Callable[[], Opened]) -> Opened | None:
        try:
            return opening()
        except (PenstockError, OSError, RuntimeError) as error:
            # RuntimeError: no more threads; the user's job can do without
            self.notes += (str(error),)
            return None


def serve_metrics(settings: Settings, tell_status: Callable[[], Mapping[str, Any]]) -> MetricsServer | None:
    """Serve the metrics of one status where the settings say; None where they name no address."""
    wanted = settings.metrics
    if wanted.address is None:
        return None
    token = read_token(Path(wanted.token_file), "the token") if wanted.token_file else None
    server = MetricsServer(wanted.address, token, lambda: expose([tell_status()]))
    log.info("metrics are at %s", server.url)
    return server


def _open_spans(settings: Settings, who: Mapping[str, str]) -> SpanTeller | None:
    endpoint = settings.traces.endpoint
    return SpanTeller(endpoint, who) if endpoint is not None else None


def _open_notifier(settings: Settings, who: Mapping[str, str]) -> Notifier | None:
    wanted = settings.notifications
    if wanted.webhooks_file is None:
        return None
    hooks = read_webhooks(Path(wanted.webhooks_file))
    key = read_token(Path(wanted.key_file), "the key") if wanted.key_file else None
    log.info("notifications: %s", describe_hooks(hooks))
    couriers = [Courier(hook, who, key, wanted.per_minute, wanted.timeout) for hook in hooks]
    return Notifier(couriers, wanted.events)
