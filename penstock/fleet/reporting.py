"""Puts an agent together: what `penstock.attach(..., report_to=...)` takes as its policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.decide.held_size import held_from
from penstock.decide.policy import Policy
from penstock.decide.sage_service_watch import ServiceWatch
from penstock.fleet.agent import FleetPolicy, Memory, Transport
from penstock.fleet.places import Topic, place_of
from penstock.fleet.transport import DirectoryTransport
from penstock.services import BOARD


def reporting_policy(
    report_to: str, application_name: str, memory: Memory, needs: Policy, spark_conf: Mapping[str, str]
) -> FleetPolicy:
    """The policy of an application that is steered by a fleet's controller.

    `report_to` is the directory of the fleet, or kafka://HOST:PORT/NAME for the topics NAME-windows and
    NAME-decisions. `needs` is the policy that would decide alone: its answer is
    told as what the application needs. The name outlives the driver, and the controller knows it by that.
    """
    return FleetPolicy(
        application_name,
        _transport(place_of(report_to)),
        memory,
        needs,
        lambda window: held_from(spark_conf, window),
        ServiceWatch(BOARD),
    )


def _transport(place: Path | Topic) -> Transport:
    if isinstance(place, Path):
        return DirectoryTransport(place)
    from penstock.fleet.kafka_transport import KafkaTransport

    return KafkaTransport(place)
