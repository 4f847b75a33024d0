"""How long a paced operator takes for a record: a mean, how it varies, and what instances cost each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.errors import BadInput


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """Service time of one record on one of several instances.

    Single times are gamma-distributed around the mean: with a variation of 0 all are equal, with 1 they
    are exponential. Contention and coherence are those of the universal scalability law: n instances
    together are as fast as n / (1 + contention·(n-1) + coherence·n·(n-1)) would be alone.
    """

    seconds: float
    variation: float = 0.0
    contention: float = 0.0
    coherence: float = 0.0

    def __post_init__(self) -> None:
        if not (self.seconds >= 0 and self.variation >= 0):
            raise BadInput("a service time and its variation are 0 or more")
        if not (0 <= self.contention <= 1 and 0 <= self.coherence <= 1):
            raise BadInput("contention and coherence of a service time lie between 0 and 1")

    def slowdown(self, instances: int) -> float:
        """How much longer a record takes than on a single instance."""
        others = instances - 1
        return 1 + self.contention * others + self.coherence * instances * others

    def capacity(self, instances: int) -> float:
        """Records a second of all instances together; infinite for a service time of 0."""
        taken = self.seconds * self.slowdown(instances)
        return instances / taken if taken else float("inf")

    def total(self, records: int, instances: int, random: np.random.Generator) -> float:
        """Seconds that one instance takes for so many records: a sum of gamma times is a gamma time."""
        mean = records * self.seconds * self.slowdown(instances)
        if not (mean and self.variation):
            return mean
        shape = records / self.variation**2
        return float(random.gamma(shape, mean / shape))
