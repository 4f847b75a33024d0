"""Settings of supervised restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, field_validator

from penstock.decide.manager.quiet import parse_quiet_spans
from penstock.decide.manager.restarts import RestartRules
from penstock.units.fields import Count, Duration, Names
from penstock.units.section import Section


class RestartSettings(Section):
    """How often and when an application is restarted, and how long a restart may take; times in seconds."""

    prefix: ClassVar[str] = "restart_"
    names: ClassVar[Mapping[str, str]] = {"per_day": "restarts_per_day"}

    per_day: Count = Field(
        4, ge=0, le=1000, description="The most restarts with new settings within 24 hours."
    )
    quiet_hours: Names = Field(
        (),
        description="Hours, in UTC, in which nothing is restarted: `08:00-18:00` of every day, or "
        "`Fri 18:00-Mon 06:00`.",
    )
    stop_timeout: Duration = Field(
        120.0, gt=0, le=86400, description="How long queries may take to finish their batch before a restart."
    )
    verify_timeout: Duration = Field(
        300.0,
        gt=0,
        le=86400,
        description="How long a restarted application may take to finish a batch; after that the old "
        "settings come back.",
    )

    @field_validator("quiet_hours")
    @classmethod
    def _check_hours(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        parse_quiet_spans(written)
        return written

    @property
    def rules(self) -> RestartRules:
        """How often and when, for the judge of restarts."""
        return RestartRules(self.per_day, parse_quiet_spans(self.quiet_hours))
