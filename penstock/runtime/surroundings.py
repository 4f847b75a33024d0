"""The surroundings of an application's policy: operators, other applications, hosts, services and a fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.dataflow.window import ApplicationWindow
    from penstock.decide.manager.restarts import RestartJudge
    from penstock.decide.policy import Policy
    from penstock.decide.sage.resizer import Host, Limits
    from penstock.decide.surroundings import Surroundings
    from penstock.journal.store import Journal
    from penstock.settings.model import Settings

    HostsNow = Callable[[ApplicationWindow], tuple[Host, ...]]


def look_around(
    journal: Journal, name: str, restarts: RestartJudge, hosts: HostsNow | None = None
) -> Surroundings:
    """Return what tells a policy of operators, other applications, hosts, services and restarts."""
    from penstock.decide.surroundings import Surroundings
    from penstock.journal.overrides import OperatorsWord
    from penstock.observe.services.board import BOARD

    return Surroundings(
        services=BOARD.newest,
        said=OperatorsWord(journal, name),
        others=lambda: _recall_sizes_of_others(journal, name),
        hosts=hosts or Surroundings().hosts,
        restarts=restarts,
    )


def name_need_policy(policy: str) -> str:
    """Name the policy that tells a fleet what an application needs: its own, or the one that Sage asks.

    The controller applies Sage's rules itself; applied twice, they would shrink nothing for twice as long.
    """
    wrapped, sign, name = policy.rpartition(":")
    return f"{wrapped}{sign}{'ds2' if name == 'sage' else name}"


def report_to_fleet(
    policy: Policy,
    report_to: str,
    settings: Settings,
    journal: Journal,
    name: str,
    conf: Mapping[str, str],
    hosts: HostsNow | None = None,
) -> Policy:
    """Return the policy of an application that a fleet steers; the given one tells what it would need."""
    from penstock.decide.limits import WithinLimits
    from penstock.decide.sage.resizer import Limits
    from penstock.decide.sage.services import ServiceWatch
    from penstock.fleet.agent import FleetPolicy
    from penstock.fleet.reporting import connect_to_fleet
    from penstock.observe.services.board import BOARD

    known = Limits.of(settings.cluster, settings.bounds)

    def limits(window: ApplicationWindow) -> Limits:
        return replace(known, hosts=hosts(window)) if hosts is not None else known

    needs, sage, fleet = WithinLimits(policy, least=settings.bounds.least), settings.sage, settings.membership
    transport = connect_to_fleet(report_to, name, fleet.key_file, fleet.kafka_options)
    watch = ServiceWatch(BOARD.newest, sage.service_test)
    return FleetPolicy(name, transport, journal, needs, conf, watch, limits, sage.up_window_seconds)


def is_obeyed(journal: Journal, name: str, force: Mapping[str, Any] | None) -> bool:
    """Tell whether an application's policy has decided by this force of an operator."""
    known = [journal.recall(name, kind).get("known", {}) for kind in _list_memory_kinds()]
    return force is not None and any(one.get("obeyed") == force["id"] for one in known)


def _recall_sizes_of_others(journal: Journal, name: str) -> dict[str, Mapping[str, Any]]:
    """Return application → the size that was right for it; nothing while the journal is away."""
    try:
        found = [journal.recall_all(kind) for kind in _list_memory_kinds()]
    except PenstockError:
        return {}
    sizes = {owner: known["size"] for one in found for owner, known in one.items() if "size" in known}
    return {owner: size for owner, size in sizes.items() if owner != name}


def _list_memory_kinds() -> tuple[str, str]:
    """Return the kinds under which Sage's memories are kept, with a forecast before it and without."""
    from penstock.decide.forecast.policy import PREFIX
    from penstock.decide.sage.policy import SagePolicy

    return f"{PREFIX}{SagePolicy.memory_kind}", SagePolicy.memory_kind
