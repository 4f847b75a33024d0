"""The dashboard that a driver serves beside its autopilot where a setting asks for it.

The room that draws lies above this one, so it is found by its name, and loaded only here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module

from penstock.errors import PenstockError
from penstock.settings.model import Settings

log = logging.getLogger(__name__)

DASHBOARD = "penstock.view.dashboard.server"


@contextmanager
def serve_dashboard(settings: Settings, application: str) -> Iterator[None]:
    """Serve the dashboard as long as the context lasts; the application runs on where that fails."""
    with ExitStack() as serving:
        try:
            if settings.dashboard.address is not None:
                served = import_module(DASHBOARD).serve_beside(settings)
                log.info("%s: the dashboard is at %s", application, serving.enter_context(served))
        except (PenstockError, ImportError, OSError) as error:
            log.warning("%s: no dashboard: %s", application, error)
        yield
