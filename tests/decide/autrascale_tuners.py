"""AuTraScale as the tests of it begin: a target, plain settings, and what a tuner has learned and done."""

from __future__ import annotations

import dataclasses

from penstock.decide.autrascale import AutraScalePolicy
from penstock.decide.autrascale_settings import AutraScaleSettings
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.policy import Scale
from tests.decide.latency_surface import Application

TARGET = 0.2
PLAIN = AutraScaleSettings(
    throughput=Ds2Settings(utilisation=1.0),
    latency_target_seconds=TARGET,
    most_parallelism=20,
    changes_per_hour=3_600,
)
BASE = {"parse": 4, "enrich": 5, "store": 2}
"""What 1,000 records/s need."""


def policy(**changes) -> AutraScalePolicy:
    return AutraScalePolicy(dataclasses.replace(PLAIN, **changes))


def models(tuner: AutraScalePolicy) -> list[dict]:
    return tuner.dump()["models"]


def scales(application: Application) -> list[Scale]:
    return [answer for answer in application.answers if isinstance(answer, Scale)]
