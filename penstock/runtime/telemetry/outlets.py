"""All outlets of an autopilot, opened and closed with it; one that does not work is told and left out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.runtime.telemetry.exposition import expose
from penstock.runtime.telemetry.server import MetricsServer, read_token

if TYPE_CHECKING:
    from penstock.runtime.loop import Cycle
    from penstock.settings.model import Settings

log = logging.getLogger(__name__)


class Outlets:
    """Where an autopilot tells of itself, as its settings say: what it says of any trouble is in `notes`."""

    def __init__(self, settings: Settings, tell_status: Callable[[], Mapping[str, Any]]) -> None:
        self.notes: tuple[str, ...] = ()
        self._server = self._try(lambda: _serve_metrics(settings, tell_status))

    def notice(self, cycle: Cycle) -> None:
        """Tell what happened in a cycle; returns at once."""

    def close(self) -> None:
        """Close them all, within seconds."""
        if self._server is not None:
            self._server.close()

    def _try(self, opening: Callable[[], Any]) -> Any:
        try:
            return opening()
        except (PenstockError, OSError) as error:
            self.notes += (str(error),)
            return None


def _serve_metrics(settings: Settings, tell_status: Callable[[], Mapping[str, Any]]) -> MetricsServer | None:
    wanted = settings.metrics
    if wanted.address is None:
        return None
    token = read_token(Path(wanted.token_file), "the token") if wanted.token_file else None
    server = MetricsServer(wanted.address, token, lambda: expose([tell_status()]))
    log.info("metrics are at %s", server.url)
    return server
