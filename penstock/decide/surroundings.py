"""Questions that a policy may ask of the world around its application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.manager.restarts import RestartJudge
from penstock.decide.sage.overrides import Said
from penstock.decide.sage.resizer import Host
from penstock.decide.sage.services import Readings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Questions that a policy may ask; by default nobody answers anything.

    `said` gives the operators' words, `others` the sizes that were right for other applications, `hosts` what
    each host can still give, `services` what remote services publish. `restarts` says whether new settings
    would be brought about; without it they are proposed all the same.
    """

    services: Readings = lambda now, not_older_than: {}
    said: Callable[[], Said] = Said
    others: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    hosts: Callable[[ApplicationWindow], tuple[Host, ...]] = lambda window: ()
    restarts: RestartJudge | None = None
