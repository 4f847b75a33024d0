"""Puts an agent together: what `penstock.attach(..., report_to=...)` takes as its policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.held_size import held_from
from penstock.decide.policy import Policy
from penstock.decide.resizer import Limits
from penstock.decide.sage_metrics import HeldSize
from penstock.decide.sage_service_watch import LAGS, ServiceWatch
from penstock.fleet.agent import FleetPolicy, Memory, Transport
from penstock.fleet.places import Topic, place_of
from penstock.fleet.transport import DirectoryTransport
from penstock.services import BOARD


def reporting_policy(
    report_to: str,
    application_name: str,
    memory: Memory,
    needs: Policy,
    spark_conf: Mapping[str, str],
    lags: Sequence[int] = LAGS,
    limits: Callable[[ApplicationWindow], Limits] | None = None,
    warm_up_seconds: float = 0.0,
) -> FleetPolicy:
    """The policy of an application that is steered by a fleet's controller.

    `report_to` is the directory of the fleet, or kafka://HOST:PORT/NAME for the topics NAME-windows and
    NAME-decisions. `needs` is the policy that would decide alone: its answer is
    told as what the application needs. The name outlives the driver, and the controller knows it by that.
    """

    def held(window: ApplicationWindow, settings: Mapping[str, str]) -> HeldSize:
        return held_from({**spark_conf, **settings}, window)

    transport = _transport(place_of(report_to))
    watch = ServiceWatch(BOARD, lags)
    return FleetPolicy(application_name, transport, memory, needs, held, watch, limits, warm_up_seconds)


def _transport(place: Path | Topic) -> Transport:
    if isinstance(place, Path):
        return DirectoryTransport(place)
    from penstock.fleet.kafka_transport import KafkaTransport

    return KafkaTransport(place)
