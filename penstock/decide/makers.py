"""Policies made from settings: what all of them share, and the parameters that bear a policy's name."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from penstock.decide.policy import Policy

if TYPE_CHECKING:
    from penstock.decide.drs import ServiceRate
    from penstock.decide.reactive import ReactiveSettings
    from penstock.decide.resizer import Limits
    from penstock.decide.sage_settings import SageSettings
    from penstock.settings import Settings


def own_parameters(settings: Settings, prefix: str, kind: type[Any]) -> dict[str, Any]:
    """The settings `prefix_x` for every field x of a policy's settings that has one."""
    known = type(settings).model_fields
    names = {one.name: f"{prefix}_{one.name}" for one in fields(kind)}
    return {name: getattr(settings, setting) for name, setting in names.items() if setting in known}


def _limits(settings: Settings) -> dict[str, Any]:
    return {"min_instances": settings.min_executors, "max_instances": settings.max_executors}


def autrascale(settings: Settings) -> Policy:
    """AuTraScale."""
    from penstock.decide.autrascale import AutraScalePolicy
    from penstock.decide.autrascale_settings import AutraScaleSettings

    return AutraScalePolicy(
        AutraScaleSettings(
            throughput=settings.ds2(),
            latency_target_seconds=settings.latency_target,
            least_parallelism=settings.min_executors,
            most_parallelism=settings.max_executors,
            **own_parameters(settings, "autrascale", AutraScaleSettings),
        )
    )


def ds2(settings: Settings) -> Policy:
    """DS2."""
    from penstock.decide.ds2 import Ds2Policy

    return Ds2Policy(settings.ds2())


def ds2_learned(settings: Settings) -> Policy:
    """DS2 with learned capacity."""
    from penstock.decide.learned import LearnedDs2Policy
    from penstock.decide.learned_settings import LearnedSettings

    own = own_parameters(settings, "ds2_learned", LearnedSettings)
    return LearnedDs2Policy(LearnedSettings(ds2=settings.ds2(), max_instances=settings.max_executors, **own))


def forecasting(inner: Policy, settings: Settings) -> Policy:
    """A policy that is shown expected rates."""
    from penstock.decide.forecast import ForecastPolicy
    from penstock.decide.forecast_settings import ForecastSettings

    return ForecastPolicy(
        inner,
        ForecastSettings(
            horizon_seconds=settings.forecast_horizon,
            season_seconds=settings.forecast_season,
            **own_parameters(settings, "forecast", ForecastSettings),
        ),
    )


def dhalion(settings: Settings) -> Policy:
    """Dhalion's rules."""
    from penstock.decide.dhalion import DhalionPolicy, DhalionSettings

    return DhalionPolicy(
        DhalionSettings(
            **_limits(settings),
            unscalable=frozenset(settings.unscalable_operators),
            **own_parameters(settings, "dhalion", DhalionSettings),
        )
    )


def drs(settings: Settings) -> Policy:
    """DRS with true rates."""
    from penstock.decide.drs import ServiceRate

    return _drs_with(settings, ServiceRate.TRUE)


def drs_observed(settings: Settings) -> Policy:
    """DRS with observed rates."""
    from penstock.decide.drs import ServiceRate

    return _drs_with(settings, ServiceRate.OBSERVED)


def _drs_with(settings: Settings, rate: ServiceRate) -> Policy:
    from penstock.decide.drs import DrsPolicy, DrsSettings

    return DrsPolicy(
        DrsSettings(
            latency_target_seconds=settings.latency_target,
            rate=rate,
            catch_up_seconds=settings.catch_up,
            **_limits(settings),
            unscalable=frozenset(settings.unscalable_operators),
        )
    )


def dynamic_allocation(settings: Settings) -> Policy:
    """Spark's dynamic allocation."""
    from penstock.decide.dynamic_allocation import DynamicAllocationPolicy, DynamicAllocationSettings

    own = own_parameters(settings, "dynamic_allocation", DynamicAllocationSettings)
    return DynamicAllocationPolicy(DynamicAllocationSettings(**_limits(settings), **own))


def queueing(settings: Settings) -> Policy:
    """The queueing policy."""
    from penstock.decide.queueing import QueueingPolicy
    from penstock.decide.queueing_settings import QueueingSettings

    return QueueingPolicy(
        QueueingSettings(
            latency_target_seconds=settings.latency_target,
            utilisation=settings.utilisation,
            catch_up_seconds=settings.catch_up,
            default_period_seconds=settings.batch_period,
            **_limits(settings),
            unscalable=frozenset(settings.unscalable_operators),
            **own_parameters(settings, "queueing", QueueingSettings),
        )
    )


def reactive_cpu(settings: Settings) -> Policy:
    """The rule of the HPA."""
    from penstock.decide.reactive import ReactivePolicy, cpu

    chosen = _reactive(settings)
    return ReactivePolicy(chosen, cpu(chosen))


def reactive_lag(settings: Settings) -> Policy:
    """The rule of KEDA."""
    from penstock.decide.reactive import ReactivePolicy, lag

    chosen = _reactive(settings)
    return ReactivePolicy(chosen, lag(chosen))


def _reactive(settings: Settings) -> ReactiveSettings:
    from penstock.decide.reactive import ReactiveSettings

    return ReactiveSettings(
        # nothing can be busier than all the time, so a share of one would never ask for more
        busy_share=min(settings.utilisation, ReactiveSettings().busy_share),
        **_limits(settings),
        unscalable=frozenset(settings.unscalable_operators),
        **own_parameters(settings, "reactive", ReactiveSettings),
    )


def sage(settings: Settings) -> Policy:
    """The rules of Sage, with DS2 for how much parallelism."""
    from penstock.decide.at_least import AtLeast
    from penstock.decide.sage_overrides import said_of
    from penstock.decide.sage_policy import SagePolicy
    from penstock.decide.sage_service_watch import ServiceWatch
    from penstock.services import BOARD

    said = said_of({"pin": settings.sage_pin, "veto": settings.sage_veto, "by": "the settings"}, "settings")
    watch = ServiceWatch(BOARD, service_lags(settings))
    first = settings.sage_first_after if settings.sage_first_after is not None else math.inf
    needs = AtLeast(ds2(settings), settings.min_executors)
    return SagePolicy(
        needs, sage_settings(settings), watch.look, resizer_limits(settings), lambda: said, first
    )


def sage_settings(settings: Settings) -> SageSettings:
    """The rules' windows hold enough samples whatever the interval is."""
    from penstock.decide.sage_settings import SageSettings

    interval = settings.policy_interval
    up = max(settings.sage_up_window, 6 * interval)
    return SageSettings(
        up_window_seconds=up,
        down_window_seconds=max(up, settings.sage_down_window, 30 * interval),
        correlation_threshold=settings.service_correlation,
    )


def service_lags(settings: Settings) -> tuple[int, ...]:
    """By how many windows a backlog may follow a remote service."""
    return tuple(int(lag) for lag in settings.service_lags)


def resizer_limits(settings: Settings) -> Limits:
    """What hosts and quotas let an application have, as far as the settings tell."""
    from penstock.decide.resizer import Limits

    quota_cores, quota_memory = settings.quota_cores or 10_000_000, settings.quota_memory or 1e18
    return Limits(
        host_cores=settings.host_cores or quota_cores,
        host_bytes=settings.host_memory or quota_memory,
        quota_cores=quota_cores,
        quota_bytes=quota_memory,
        most_executors=settings.max_executors,
    )


def threshold(settings: Settings) -> Policy:
    """The threshold policy."""
    from penstock.decide.threshold import ThresholdPolicy, ThresholdSettings

    return ThresholdPolicy(
        ThresholdSettings(
            **_limits(settings),
            unscalable=frozenset(settings.unscalable_operators),
            **own_parameters(settings, "threshold", ThresholdSettings),
        )
    )


def trigger_interval(settings: Settings) -> Policy:
    """The proposal SPARK-24815."""
    from penstock.decide.trigger_interval import TriggerIntervalPolicy, TriggerIntervalSettings

    own = own_parameters(settings, "trigger_interval", TriggerIntervalSettings)
    return TriggerIntervalPolicy(TriggerIntervalSettings(**_limits(settings), **own))
