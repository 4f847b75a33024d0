"""The metrics of applications as the text that Prometheus scrapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from prometheus_client import Metric as Family
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from penstock.runtime.telemetry.catalog import IDENTITY, METRICS, MOST_SERIES, Histogram, Metric, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONGEST_LABEL = 200
_FAMILIES: Mapping[str, type[Any]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


def expose(statuses: Iterable[Status]) -> bytes:
    """Write all metrics of these applications; of two with the same id and name the first counts.

    A status may come from another version: what it does not hold is left out.
    """
    return generate_latest(_Families(list(statuses)))


@dataclass
class _Families(Collector):
    """The metrics of the catalog in the form that the library writes."""

    statuses: Sequence[Status]

    def collect(self) -> Iterator[Family]:
        """Yield a family for every metric, also for one that no application tells."""
        for metric in METRICS:
            yield _gather(metric, self.statuses)


def _gather(metric: Metric, statuses: Sequence[Status]) -> Any:
    family: Any = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.all_labels)
    seen: set[tuple[str, ...]] = set()
    for status in statuses:
        identity = tuple(str(status.get(key) or "") for key in IDENTITY)
        for own, value in islice(metric.read(status), MOST_SERIES):
            labels = tuple(map(_shorten, (*identity, *own)))
            if labels in seen:
                continue
            seen.add(labels)
            if isinstance(value, Histogram):
                buckets = [
                    ("+Inf" if bound == math.inf else str(bound), count) for bound, count in value.counts
                ]
                family.add_metric(labels, buckets, value.total)
            else:
                family.add_metric(labels, value)
    return family


def _shorten(text: str) -> str:
    """Bound a name that others have given, and replace what is no text."""
    return text[:LONGEST_LABEL].encode("utf-8", "replace").decode()
