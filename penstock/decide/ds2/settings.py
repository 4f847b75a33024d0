"""Settings of DS2 with learned capacity; DS2 itself needs the goals alone."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from penstock.units.fields import Count
from penstock.units.section import Section


class LearnedSettings(Section):
    """How much of what was seen is used."""

    prefix: ClassVar[str] = "ds2_learned_"

    least_sizes: Count = Field(
        2,
        ge=2,
        le=64,
        description="Sizes that an operator must have had before ds2-learned draws a curve through them.",
    )
