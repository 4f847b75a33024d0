"""Settings of what is told to others: metrics to scrape, notifications, spans, and what things cost."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from penstock.units.fields import Count, Duration, Names, OptionalLocation, OptionalRatio, OptionalText
from penstock.units.section import Section

EVENTS = ("action", "outcome", "effect", "rollback", "heartbeat", "pause")
"""Kinds of events that a notification may tell."""


def split_address(written: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:4051` or `[::1]:4051`; a ValueError says what was expected."""
    host, _, port = written.strip().rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError("an address with a port is expected, such as 127.0.0.1:4051")
    try:
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError:
        raise ValueError("an IP address before the port is expected, such as 127.0.0.1:4051") from None


class MetricsSettings(Section):
    """Where the driver serves its metrics."""

    prefix: ClassVar[str] = "metrics_"
    names: ClassVar[Mapping[str, str]] = {"address": "metrics"}

    address: OptionalText = Field(
        None,
        description="The address at which the driver serves `/metrics` for Prometheus, such as "
        "`127.0.0.1:4051`; port 0 takes a free one. Any other than a loopback address needs "
        "`metrics_token_file`. `none`: nothing is served.",
    )
    token_file: OptionalLocation = Field(
        None,
        description="The file with the token that who scrapes must send (`Authorization: Bearer`): one line "
        "of at least 16 characters, in a file that nobody but this user may be able to read.",
    )

    @field_validator("address")
    @classmethod
    def _check_address(cls, written: str | None) -> str | None:
        if written is not None:
            split_address(written)
        return written

    @model_validator(mode="after")
    def _check_token(self) -> MetricsSettings:
        if self.address is not None and self.token_file is None:
            host, _ = split_address(self.address)
            if not ipaddress.ip_address(host).is_loopback:
                raise ValueError(f"metrics ({host}) is no loopback address, so metrics_token_file is needed")
        return self


class NotificationSettings(Section):
    """Who is told of actions, rollbacks and a loop that hangs."""

    prefix: ClassVar[str] = "notify_"

    webhooks_file: OptionalLocation = Field(
        None,
        description="The file with the webhooks that are told what happens, one a line: `json` or `slack`, "
        "and an address with http:// or https://. Nobody but this user may be able to read it, since such "
        "an address may be a secret.",
    )
    key_file: OptionalLocation = Field(
        None,
        description="The file with the key that notifications are signed with (HMAC-SHA256, in "
        "`X-Penstock-Signature`): one line of at least 16 characters, for this user alone.",
    )
    events: Names = Field(
        ("action", "outcome", "rollback", "heartbeat", "pause"),
        description=f"What is told: any of {', '.join(f'`{one}`' for one in EVENTS)}.",
        json_schema_extra={"default_text": "`action,outcome,rollback,heartbeat,pause`"},
    )
    per_minute: Count = Field(
        20,
        ge=1,
        le=600,
        description="The most notifications that are sent within a minute to one webhook; the next one says "
        "how many were left out. Lost heartbeats and rollbacks are always sent.",
    )
    timeout: Duration = Field(
        5.0, gt=0, le=60, description="How long one delivery may take in all; no redirect is followed."
    )

    @field_validator("events")
    @classmethod
    def _check_events(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        for event in written:
            if event not in EVENTS:
                raise ValueError(f"unknown event {event!r}; known: {', '.join(EVENTS)}")
        return written


class TraceSettings(Section):
    """Where spans go."""

    prefix: ClassVar[str] = "otlp_"

    endpoint: OptionalText = Field(
        None,
        description="The address of an OpenTelemetry collector that takes spans by OTLP over HTTP, such as "
        "`http://127.0.0.1:4318/v1/traces`: one span for each decision, action and effect. Needs the extra "
        "`otel`.",
    )

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, written: str | None) -> str | None:
        if written is not None and not written.startswith(("http://", "https://")):
            raise ValueError("an address that begins with http:// or https:// is expected")
        return written


class PriceSettings(Section):
    """Prices of cores and memory, in any currency."""

    prefix: ClassVar[str] = "price_"

    per_core_hour: OptionalRatio = Field(
        None, ge=0, description="What one core costs for an hour; reports and the dashboard then tell money."
    )
    per_gb_hour: OptionalRatio = Field(
        None, ge=0, description="What 10⁹ bytes of executor memory cost for an hour."
    )
