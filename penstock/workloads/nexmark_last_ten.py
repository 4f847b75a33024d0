"""The stateful part of Nexmark's query 6: a seller's last ten closing prices, kept as one value of state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

KEPT = 10
RESULT = "seller bigint, auction bigint, average double"


class LastTen(StatefulProcessor):
    """Auctions of one seller in the order of their opening; each closing gives a new average."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: prices, oldest first."""
        self._prices = handle.getValueState("prices", "prices array<bigint>")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """All closings of one batch."""
        closed = pd.concat(list(rows)).sort_values(["opened", "auction"])
        before = self._prices.get()
        kept = [int(price) for price in before[0]] if before else []
        averages = []
        for price in closed["price"]:
            kept = [*kept, int(price)][-KEPT:]
            averages.append(sum(kept) / len(kept))
        self._prices.update((kept,))
        yield pd.DataFrame({"seller": key[0], "auction": closed["auction"].to_numpy(), "average": averages})

    def close(self) -> None:
        """Nothing is held beside the state."""


def average_of_last_ten(closed: DataFrame) -> DataFrame:
    """(seller, auction, average) for each closed auction."""
    by_seller = closed.select("seller", "auction", "opened", "price").groupBy("seller")
    return by_seller.transformWithStateInPandas(
        statefulProcessor=LastTen(), outputStructType=RESULT, outputMode="append", timeMode="none"
    )
