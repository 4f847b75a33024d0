"""All settings: the sections of every room put together, and read from their places.

A setting has one name everywhere: `policy_interval` in the YAML file, `PENSTOCK_POLICY_INTERVAL` in the
environment, `spark.penstock.policy_interval` (or `spark.penstock.policy.interval`) in Spark's configuration;
each of these outranks the one before it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic.fields import FieldInfo

from penstock.act.restart.settings import RestartSettings
from penstock.act.scaling import ScalingSettings
from penstock.decide.ahead.settings import AheadSettings
from penstock.decide.autrascale.settings import AutraScaleSettings
from penstock.decide.baselines.dhalion import DhalionSettings
from penstock.decide.baselines.dynamic_allocation import DynamicAllocationSettings
from penstock.decide.baselines.flink_autoscaler import FlinkSettings
from penstock.decide.baselines.reactive import ReactiveSettings
from penstock.decide.baselines.threshold import ThresholdSettings
from penstock.decide.baselines.trigger_interval import TriggerIntervalSettings
from penstock.decide.ds2.settings import LearnedSettings
from penstock.decide.forecast.rates import ForecastSettings
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.manager.settings import ManagerSettings
from penstock.decide.queueing.settings import QueueingSettings
from penstock.decide.sage.settings import ClusterLimits, SageSettings
from penstock.errors import BadSettings
from penstock.migrate.settings import MigrationSettings
from penstock.observe.settings import ExecutorMetricsSettings, ObserveSettings, ServiceSettings
from penstock.settings.dashboard import DashboardSettings
from penstock.settings.run import (
    FuseSettings,
    MembershipSettings,
    RunSettings,
    default_journal,
    default_runtime_directory,
)
from penstock.settings.sources import (
    Given,
    from_arguments,
    from_environment,
    from_spark,
    from_yaml,
    suggest_setting,
)
from penstock.settings.telemetry import MetricsSettings, NotificationSettings, PriceSettings, TraceSettings
from penstock.units.section import BadValue, Section, SectionType, extra_of
from penstock.units.texts import read_text

CONFIG_VARIABLE = "PENSTOCK_CONFIG"
"""Names the settings file where none is given; not a setting itself."""


@dataclass(frozen=True, init=False)
class Settings:
    """Every section, made from flat names: `Settings(policy="ds2", max_executors=20)`."""

    run: RunSettings
    membership: MembershipSettings
    fuse: FuseSettings
    dashboard: DashboardSettings
    manager: ManagerSettings
    goals: Goals
    bounds: SizeBounds
    scaling: ScalingSettings
    migration: MigrationSettings
    observe: ObserveSettings
    executor_metrics: ExecutorMetricsSettings
    restart: RestartSettings
    services: ServiceSettings
    cluster: ClusterLimits
    sage: SageSettings
    forecast: ForecastSettings
    learned: LearnedSettings
    ahead: AheadSettings
    queueing: QueueingSettings
    autrascale: AutraScaleSettings
    threshold: ThresholdSettings
    dhalion: DhalionSettings
    reactive: ReactiveSettings
    flink: FlinkSettings
    dynamic_allocation: DynamicAllocationSettings
    trigger_interval: TriggerIntervalSettings
    metrics: MetricsSettings
    notifications: NotificationSettings
    traces: TraceSettings
    prices: PriceSettings

    def __init__(self, **given: object) -> None:
        for name, kind in section_kinds().items():
            object.__setattr__(self, name, kind(**_own_fields(kind, given)))
        _refuse_unknown(given)
        low, utilisation = self.manager.utilisation_low, self.goals.utilisation
        if low >= utilisation:
            problem = f"utilisation_low ({low}) is not below utilisation ({utilisation})"
            raise BadValue(problem, ("utilisation_low", "utilisation"), crossed=True)

    def section(self, kind: type[SectionType], /) -> SectionType:
        """Return the section of this kind."""
        return next(one for one in vars(self).values() if type(one) is kind)

    @property
    def tell_others(self) -> bool:
        """True if metrics are served, or somebody is told what happens."""
        return any((self.metrics.address, self.notifications.webhooks_file, self.traces.endpoint))

    def change(self, **given: object) -> Settings:
        """Return a copy with other values; how sections fit each other is not asked again."""
        _refuse_unknown(given)
        copy = object.__new__(Settings)
        for name, section in vars(self).items():
            own = _own_fields(type(section), given)
            object.__setattr__(copy, name, section.change(**own) if own else section)
        return copy

    def flat(self) -> dict[str, Any]:
        """Return all values as plain data, by their names outside."""
        values: dict[str, Any] = {}
        for section in vars(self).values():
            plain = section.model_dump(mode="json")
            values |= {name: plain[field] for name, (field, _) in section.settings().items()}
        return values


@cache
def section_kinds() -> dict[str, type[Section]]:
    """Map the name of every section to its class."""
    return get_type_hints(Settings)


def settings_fields() -> dict[str, FieldInfo]:
    """Map the name of every setting to its field, section by section."""
    return {name: field for kind in section_kinds().values() for name, (_, field) in kind.settings().items()}


@cache
def known_names() -> tuple[str, ...]:
    """Return the name of every setting."""
    return tuple(settings_fields())


@cache
def former_names() -> dict[str, str]:
    """Map the former name of each renamed setting to its name; a field tells it as `formerly`."""
    told = ((extra_of(field, "formerly"), name) for name, field in settings_fields().items())
    return {str(before): name for before, name in told if before}


def _own_fields(kind: type[Section], given: Mapping[str, object]) -> dict[str, object]:
    return {field: given[name] for name, (field, _) in kind.settings().items() if name in given}


def _refuse_unknown(given: Mapping[str, object]) -> None:
    for name in given:
        if name not in known_names():
            raise BadSettings(f"{name}: unknown setting{suggest_setting(name, known_names())}")


def load_settings(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    spark_conf: Mapping[str, str] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> Settings:
    """Read all places, the later outranking the earlier: file, environment, Spark, arguments in code."""
    surroundings = os.environ if environment is None else environment
    given = collect_given(file, surroundings, spark_conf or {}, arguments or {})
    values: dict[str, object] = {
        "journal": default_journal(surroundings),
        "runtime_directory": default_runtime_directory(surroundings),
        **{name: one.value for name, one in given.items()},
    }
    try:
        return Settings(**values)
    except BadValue as error:
        places = [given[name].place if name in given else name for name in error.names]
        known = [given[name].place for name in error.names if name in given]
        raise BadSettings(f"{', '.join(known or places)}: {error.problem}") from None


def collect_given(
    file: Path | None,
    environment: Mapping[str, str],
    spark_conf: Mapping[str, str],
    arguments: Mapping[str, object],
) -> dict[str, Given]:
    """Map each setting that is written somewhere to its value and place; the highest place counts."""
    known, former, named = known_names(), former_names(), environment.get(CONFIG_VARIABLE)
    path = file if file is not None else Path(named) if named else None
    return {
        **(from_yaml(str(path), read_text(path, BadSettings), known, former) if path else {}),
        **from_environment(environment, known, former, reserved=frozenset({CONFIG_VARIABLE})),
        **from_spark(spark_conf, known, former),
        **from_arguments(arguments, known, former),
    }
