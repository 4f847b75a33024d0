"""Ad events of the Yahoo streaming benchmark, with the moment of their offer as event time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import BadInput
from penstock.workloads.arrivals import arrivals
from penstock.workloads.draws import below, bits, draws
from penstock.workloads.profiles import Profile
from penstock.workloads.source import Content, LoadOptions, LoadSource

AD_FORMAT = "penstock-ad-events"
CAMPAIGNS, ADS_A_CAMPAIGN = 100, 10
USERS = PAGES = 100
EVENT_TYPES = pa.array(["view", "click", "purchase"])
AD_TYPES = pa.array(["banner", "modal", "sponsored-search", "mail", "mobile"])


@dataclass(frozen=True, slots=True)
class AdEvents:
    """Events by number; a third of them are views."""

    profile: Profile
    start: float
    """When the profile begins, in seconds since the epoch."""
    seed: int = 0
    schema: str = (
        "user bigint, page bigint, ad bigint, ad_type string, event_type string, event_time timestamp"
    )
    rows_per_batch: int = 20_000

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """The events first … first+count-1."""
        position = 2 * np.arange(first, first + count, dtype=np.uint64)
        drawn, again = draws(position, self.seed), draws(position + np.uint64(1), self.seed)
        times = np.rint((self.start + arrivals(self.profile, first, count)) * 1e6).astype(np.int64)
        columns = {
            "user": pa.array((bits(again, 0, 16) % USERS).astype(np.int64)),
            "page": pa.array((bits(again, 16, 16) % PAGES).astype(np.int64)),
            "ad": pa.array(below(drawn, 0, CAMPAIGNS * ADS_A_CAMPAIGN)),
            "ad_type": AD_TYPES.take(pa.array((bits(again, 32, 16) % len(AD_TYPES)).astype(np.int64))),
            "event_type": EVENT_TYPES.take(pa.array(below(drawn, 32, len(EVENT_TYPES)))),
            "event_time": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
        }
        return pa.RecordBatch.from_pydict(columns)


class AdSource(LoadSource):
    """The data source to register; its option `start` is needed, since event times follow from it."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return AD_FORMAT

    def content(self) -> Content:
        """Ad events at the pace of the profile."""
        options = LoadOptions.of(self.options)
        if options.start_ms is None:
            raise BadInput("ad events need the option start: their event time is when they are offered")
        return AdEvents(options.profile, options.start_ms / 1000, options.seed)


def campaign_of(ad: int) -> int:
    """Ten ads belong to each campaign."""
    return ad // ADS_A_CAMPAIGN
