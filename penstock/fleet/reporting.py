"""Puts an agent together: what `penstock.attach(..., report_to=...)` takes as its policy."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.decide.policy import Policy
from penstock.decide.sage_service_watch import ServiceWatch
from penstock.errors import BadInput
from penstock.fleet.agent import FleetPolicy, Memory
from penstock.fleet.held_size import held_from
from penstock.fleet.places import Topic, place_of
from penstock.fleet.transport import DirectoryTransport
from penstock.services import BOARD


def reporting_policy(
    report_to: str, application_name: str, memory: Memory, needs: Policy, spark_conf: Mapping[str, str]
) -> FleetPolicy:
    """The policy of an application that is steered by a fleet's controller.

    `report_to` is the directory of the fleet. `needs` is the policy that would decide alone: its answer is
    told as what the application needs. The name outlives the driver, and the controller knows it by that.
    """
    place = place_of(report_to)
    if isinstance(place, Topic):
        raise BadInput(
            f"report_to: {report_to}: agents report to a directory; the controller can read a topic"
        )
    return FleetPolicy(
        application_name,
        DirectoryTransport(place),
        memory,
        needs,
        lambda window: held_from(spark_conf, window),
        ServiceWatch(BOARD),
    )
