"""What can be set on sizing memory and cores: metrics of executors, restarts, limits, operators' words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from penstock.decide.held_size import size_in_bytes
from penstock.decide.quiet_hours import parse_quiet_hours
from penstock.decide.sage_overrides import parameter_named, rule_named
from penstock.decide.sage_services import ASPECTS
from penstock.errors import BadInput, BadMetrics
from penstock.service_metrics import formula_of
from penstock.settings_types import (
    Count,
    Duration,
    NamedTexts,
    Names,
    OptionalCount,
    OptionalDuration,
    OptionalText,
    OrOff,
    Ratio,
)


def _optional_size(written: object) -> object:
    if written is None or (isinstance(written, str) and written.strip().lower() in {"", "none", "null"}):
        return None
    if isinstance(written, str):
        try:
            written = size_in_bytes(written, "a size")
        except BadInput as error:
            raise ValueError(str(error)) from None
    if not isinstance(written, int | float) or isinstance(written, bool) or not written > 0:
        raise ValueError("a size such as 64g is expected")
    return float(written)


MOST_LAG = 1000
"""Intervals by which a backlog may follow a service; twice as many samples are kept of both."""
OptionalSize = Annotated[float | None, BeforeValidator(_optional_size)]


class SizingSettings(BaseModel):
    """The part of the settings that belongs to sizing memory and cores."""

    executor_metrics: Annotated[Literal["off", "listen"], OrOff] = Field(
        "off",
        description="`listen` opens a UDP port in the driver, to which executors send what they use; "
        "`penstock run` tells Spark so. Without it memory grows by losses and GC alone, and is never "
        "lowered.",
    )
    executor_metrics_port: Count = Field(
        0, ge=0, le=65535, description="The UDP port for it; 0 takes a free one, with `penstock run` only."
    )
    executor_metrics_every: Duration = Field(
        5.0,
        ge=1,
        le=600,
        description="How often executors send it; it should be well below `policy_interval`.",
    )
    restarts_per_day: Count = Field(
        4, ge=0, le=1000, description="The most restarts with new settings within 24 hours."
    )
    restart_quiet_hours: Names = Field(
        (), description="Hours of the day, in UTC, in which nothing is restarted, such as `08:00-18:00`."
    )
    restart_stop_timeout: Duration = Field(
        120.0, gt=0, le=86400, description="How long queries may take to finish their batch before a restart."
    )
    restart_verify_timeout: Duration = Field(
        300.0,
        gt=0,
        le=86400,
        description="How long a restarted application may take to finish a batch; after that the old "
        "settings come back.",
    )
    sage_up_window: Duration = Field(
        60.0,
        gt=0,
        le=86400,
        description="The time over which Sage's rules that grow look, at least six intervals.",
    )
    sage_down_window: Duration = Field(
        300.0,
        gt=0,
        le=604800,
        description="The time over which Sage's rules that shrink look, at least thirty intervals; no more "
        "than 10,000 samples are kept.",
    )
    sage_first_after: OptionalDuration = Field(
        180.0,
        gt=0,
        le=86400,
        description="When a new application gets a first size for memory and cores together, from what it "
        "has used since its start and from similar applications in the journal; `none` for never. It must be "
        "below `sage_down_window`, after which the rules know enough by themselves.",
    )
    sage_pin: Names = Field(
        (),
        description="Parameters that stay as they are: parallelism, heap, overhead, memory-fraction, cpu, "
        "driver-heap.",
    )
    sage_veto: Names = Field((), description="Rules of Sage that are silent, such as P3.")
    service_lags: Names = Field(
        ("0", "1", "2", "3"),
        description="By how many policy intervals a backlog may follow a remote service, in whole numbers.",
        json_schema_extra={"default_text": "`0,1,2,3`"},
    )
    service_correlation: Ratio = Field(
        0.7,
        gt=0,
        le=1,
        description="From this correlation with a remote service on, a growing backlog does not scale.",
    )
    services: NamedTexts = Field(
        {},
        description="Remote services whose metrics are scraped: name and address of the Prometheus text, "
        "such as `profiles=http://profiles:9090/metrics`.",
        json_schema_extra={"default_text": "none"},
    )
    service_metrics: NamedTexts = Field(
        {},
        description="Which metric of that text is which aspect: `latency_seconds`, `error_ratio`, "
        "`throughput_per_second`; with a service's name and a dot before the aspect, for that one alone. A "
        "counter is written as `rate(name)`, and a quotient as `rate(seconds_sum)/rate(seconds_count)`.",
        json_schema_extra={"default_text": "none"},
    )
    service_scrape_timeout: Duration = Field(2.0, gt=0, le=60, description="How long one scrape may take.")
    standalone_master: Names = Field(
        (),
        description="The address of a standalone master's JSON, such as `http://master:8080/json/`: what is "
        "free on each host then counts, too.",
    )
    host_cores: OptionalCount = Field(
        None, ge=1, le=100_000, description="The cores of one host, the most that an executor may have."
    )
    host_memory: OptionalSize = Field(
        None, description="The memory of one host, such as `64g`, the most that an executor may have."
    )
    quota_cores: OptionalCount = Field(
        None, ge=1, le=10_000_000, description="The most cores of all executors together."
    )
    quota_memory: OptionalSize = Field(
        None, description="The most memory of all executors together, such as `256g`."
    )

    report_to: OptionalText = Field(
        None,
        description="The fleet that the application belongs to: its directory, or `kafka://HOST:PORT/NAME`. "
        "Windows are published there, and what its controller decides is carried out.",
    )

    @field_validator("services")
    @classmethod
    def _check_services(cls, written: dict[str, str]) -> dict[str, str]:
        for name, url in written.items():
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"the address of {name} must begin with http:// or https://")
        return written

    @field_validator("standalone_master")
    @classmethod
    def _check_master(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        if len(written) > 1 or not all(url.startswith(("http://", "https://")) for url in written):
            raise ValueError("one address that begins with http:// or https:// is expected")
        return written

    @field_validator("service_metrics")
    @classmethod
    def _check_metrics(cls, written: dict[str, str]) -> dict[str, str]:
        for key, metric in written.items():
            aspect = key.rpartition(".")[2]
            if aspect not in ASPECTS:
                raise ValueError(f"unknown aspect {aspect!r}; known: {', '.join(ASPECTS)}")
            try:
                formula_of(metric)
            except BadMetrics as error:
                raise ValueError(str(error)) from None
        return written

    @field_validator("restart_quiet_hours")
    @classmethod
    def _check_hours(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        parse_quiet_hours(written)
        return written

    @field_validator("sage_pin")
    @classmethod
    def _check_pins(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(written, lambda name: parameter_named(name, "sage_pin"))

    @field_validator("sage_veto")
    @classmethod
    def _check_vetoes(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(written, lambda name: rule_named(name, "sage_veto"))

    @field_validator("service_lags")
    @classmethod
    def _check_lags(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        for lag in written:
            if not str(lag).isdecimal() or int(lag) > MOST_LAG:
                raise ValueError(f"a whole number of intervals up to {MOST_LAG} is expected, not {lag!r}")
        return written


def _checked(names: tuple[str, ...], check: Callable[[str], object]) -> tuple[str, ...]:
    for name in names:
        try:
            check(name)
        except BadInput as error:
            raise ValueError(str(error)) from None
    return names
