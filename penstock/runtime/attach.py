"""Attaches the autopilot to a running Spark application: one autopilot an application.

This module is loaded by `import penstock`, so it imports at the top only what costs nothing.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.runtime.autopilot import Autopilot

if TYPE_CHECKING:
    from penstock.settings.model import Settings

log = logging.getLogger(__name__)

STOPPING_SECONDS = 5.0
"""How long attaching anew waits for an autopilot that was told to stop and is still at it."""

_attached: dict[str, Autopilot] = {}
_listing = threading.Lock()
"""Held for a moment, to change the list; an autopilot that ends needs it while `_attaching` is held."""
_attaching = threading.Lock()


def attach(
    spark: Any,
    *,
    policy: str | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | Settings | None = None,
    report_to: str | None = None,
) -> Autopilot:
    """Attach the autopilot to this session's application; attaching again returns the same handle.

    A Spark Connect session will do where its server is in this process.

    `config` names a settings file; `settings` given here outrank it, the environment and Spark's own.
    `report_to` is the place of a fleet, a directory or kafka://HOST:PORT/NAME: windows are published there,
    and what the fleet's controller decides is carried out, within this application's own guardrails.
    """
    from penstock.observe.spark_session import (
        application_id,
        check_supported,
        find_driver_session,
        own_session,
    )
    from penstock.runtime.assembly import assemble_autopilot, read_settings

    spark = find_driver_session(spark, own_session())
    check_supported(spark)
    chosen = {} if policy is None else {"policy": policy}
    effective = read_settings(spark, settings, chosen, Path(config) if config is not None else None)
    fleet = report_to or effective.membership.report_to
    return attach_once(application_id(spark), lambda: assemble_autopilot(spark, effective, fleet))


def attach_once(
    application: str, assemble: Callable[[], Autopilot], patience: float = STOPPING_SECONDS
) -> Autopilot:
    """Return the running autopilot of this application, or a new one; wait for one that is stopping."""
    with _attaching:
        known = _attached.get(application)
        if known is not None and known.running and not known.stopping:
            log.info("%s: the autopilot is attached already", application)
            return known
        if known is not None and not known.ended_within(patience):
            log.warning("%s: the autopilot before has not ended after %g s", application, patience)
        handle = assemble()
        with _listing:
            _attached[application] = handle
        # inside the lock: another thread must find it at work, or it would start a second one
        handle.start(_unlist)
    return handle


def _unlist(handle: Autopilot) -> None:
    with _listing:
        if _attached.get(handle.application) is handle:
            del _attached[handle.application]


@atexit.register
def detach_all() -> None:
    """Detach every autopilot of this process; what ends the process calls it, too."""
    for handle in list(_attached.values()):
        handle.detach()
