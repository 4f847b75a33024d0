"""Settings of what is observed: batches, executors, remote services and the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from penstock.decide.sage.services import ASPECTS
from penstock.errors import BadMetrics
from penstock.observe.services.metrics import parse_formula
from penstock.units.fields import Count, Duration, NamedTexts, Names, OrOff
from penstock.units.section import Section

WEB = ("http://", "https://")


class ObserveSettings(Section):
    """How much is read from Spark."""

    max_tasks_per_stage: Count = Field(
        1000,
        ge=1,
        le=1_000_000,
        description="The most tasks of one stage that are read from Spark for one batch.",
    )


class ExecutorMetricsSettings(Section):
    """Whether and how executors report what they use."""

    prefix: ClassVar[str] = "executor_metrics_"
    names: ClassVar[Mapping[str, str]] = {"mode": "executor_metrics"}

    mode: Annotated[Literal["off", "listen"], OrOff] = Field(
        "off",
        description="`listen` opens a UDP port in the driver, to which executors send what they use; "
        "`penstock run` tells Spark so. Without it memory grows by losses and GC alone, and is never "
        "lowered.",
    )
    port: Count = Field(
        0, ge=0, le=65535, description="The UDP port for it; 0 takes a free one, with `penstock run` only."
    )
    every: Duration = Field(
        5.0,
        ge=1,
        le=600,
        description="How often executors send it; it should be well below `policy_interval`.",
    )


class ServiceSettings(Section):
    """Remote services that are scraped, and the master that tells what is free on each host."""

    prefix: ClassVar[str] = "service_"
    names: ClassVar[Mapping[str, str]] = {"addresses": "services", "standalone_master": "standalone_master"}

    addresses: NamedTexts = Field(
        {},
        description="Remote services whose metrics are scraped: name and address of the Prometheus text, "
        "such as `profiles=http://profiles:9090/metrics`.",
        json_schema_extra={"default_text": "none"},
    )
    metrics: NamedTexts = Field(
        {},
        description="Which metric of that text is which aspect: `latency_seconds`, `error_ratio`, "
        "`throughput_per_second`; with a service's name and a dot before the aspect, for that one alone. A "
        "counter is written as `rate(name)`, and a quotient as `rate(seconds_sum)/rate(seconds_count)`.",
        json_schema_extra={"default_text": "none"},
    )
    scrape_timeout: Duration = Field(
        2.0, gt=0, le=60, description="How long one scrape may take in all; no redirect is followed."
    )
    standalone_master: Names = Field(
        (),
        description="The address of a standalone master's JSON, such as `http://master:8080/json/`: what is "
        "free on each host then counts, too.",
    )

    @field_validator("addresses")
    @classmethod
    def _check_addresses(cls, written: dict[str, str]) -> dict[str, str]:
        for name, url in written.items():
            if not url.startswith(WEB):
                raise ValueError(f"the address of {name} must begin with http:// or https://")
        return written

    @field_validator("standalone_master")
    @classmethod
    def _check_master(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        if len(written) > 1 or not all(url.startswith(WEB) for url in written):
            raise ValueError("one address that begins with http:// or https:// is expected")
        return written

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, written: dict[str, str]) -> dict[str, str]:
        for key, metric in written.items():
            aspect = key.rpartition(".")[2]
            if aspect not in ASPECTS:
                raise ValueError(f"unknown aspect {aspect!r}; known: {', '.join(ASPECTS)}")
            try:
                parse_formula(metric)
            except BadMetrics as error:
                raise ValueError(str(error)) from None
        return written
