"""Settings of the planning controller."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.units.fields import Duration, OptionalDuration, Ratio
from penstock.units.section import Section


class AheadSettings(Section):
    """The risk that is taken, and what a change costs; times in seconds."""

    prefix: ClassVar[str] = "ahead_"

    risk: Ratio = Field(
        0.001,
        gt=0,
        le=1,
        description="The share of the time in which `ahead` may be too small: it holds the least size that "
        "is not more likely than this to be short before a larger one could be there.",
    )
    price: Duration = Field(
        30.0,
        ge=0,
        le=86400,
        description="What a change costs `ahead`, as the time for which all that is held could be held "
        "instead. A smaller size is taken once it would have saved the price, at first that of going there "
        "and back; while a load rises, as much is taken at once as makes changes and early executors "
        "cheapest together.",
    )
    first_delay: Duration = Field(
        60.0,
        gt=0,
        le=86400,
        description="How long `ahead` takes a change to last until it has seen how long changes last.",
    )
    season: OptionalDuration = Field(
        86400.0,
        gt=0,
        le=31_536_000,
        description="After how long `ahead` expects loads to come back; `none` if they do not.",
    )
