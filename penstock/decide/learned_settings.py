"""What can be set on DS2 with learned capacity."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.ranges import require


@dataclass(frozen=True, slots=True)
class LearnedSettings:
    """Settings of DS2, and how much of what was seen is used.

    `least_sizes` is the number of sizes that must have been seen before a curve is drawn through them.
    `max_instances` is the largest size that is looked at where a curve grows ever more slowly.
    """

    ds2: Ds2Settings = field(default_factory=Ds2Settings)
    least_sizes: int = 2
    max_instances: int = 64

    def __post_init__(self) -> None:
        require("least_sizes", self.least_sizes, 2, above=False)
        require("max_instances", self.max_instances, 1, above=False)
