"""Nexmark's queries in plain pandas, with the late events that a watermark keeps out.

A batch is judged by the watermark of the batch before it: the highest event time seen until then less
the delay, of two streams the smaller. What is dropped is what could only belong to something closed.
"""

import pandas as pd

EUROS_A_DOLLAR = 0.908


class Reference:
    """Events in batches, as the queries read them: `batches[kind][number]` is a DataFrame."""

    def __init__(self, batches, windows):
        self.batches = batches
        self.windows = windows

    def all_of(self, kind):
        return pd.concat(self.batches[kind], ignore_index=True)

    def watermarks(self, kinds):
        """For each batch the watermark that judges whether its events are late."""
        known = [pd.Timestamp(0, tz="UTC")] * 2
        highest = {kind: pd.Timestamp(0, tz="UTC") for kind in kinds}
        for number in range(len(self.batches[kinds[0]])):
            for kind in kinds:
                highest[kind] = max(highest[kind], self.batches[kind][number]["date_time"].max())
            known.append(max(known[-1], min(highest.values()) - seconds(self.windows.watermark)))
        return known[:-2]

    def on_time(self, kind, kinds, closes):
        """Events whose closing time, given by `closes`, lies after the watermark."""
        kept = [
            batch[closes(batch["date_time"]) > watermark]
            for batch, watermark in zip(self.batches[kind], self.watermarks(kinds), strict=True)
        ]
        return pd.concat(kept, ignore_index=True)

    def query_1(self):
        bids = self.all_of("bids")
        return bids.assign(price=bids["price"] * EUROS_A_DOLLAR)[["auction", "bidder", "price", "date_time"]]

    def query_2(self):
        bids = self.all_of("bids")
        return bids[bids["auction"] % 123 == 0][["auction", "price"]]

    def query_3(self):
        auctions, persons = self.all_of("auctions"), self.all_of("persons")
        auctions = auctions[auctions["category"] == 10][["id", "seller"]].rename(columns={"id": "auction"})
        persons = persons[persons["state"].isin(["OR", "ID", "CA"])]
        joined = auctions.merge(persons, left_on="seller", right_on="id")
        return joined[["name", "city", "state", "auction"]]

    def closing_prices(self):
        kinds = ("auctions", "bids")
        auctions, bids = (self.on_time(kind, kinds, lambda times: times) for kind in kinds)
        columns = ["id", "seller", "category", "date_time", "expires"]
        auctions = auctions[columns].rename(columns={"date_time": "opened"})
        joined = auctions.merge(bids, left_on="id", right_on="auction")
        latest = joined[["expires"]].assign(longest=joined["opened"] + seconds(self.windows.longest_auction))
        in_time = (joined["date_time"] >= joined["opened"]) & (joined["date_time"] <= latest.min(axis=1))
        groups = joined[in_time].groupby(["auction", "seller", "category", "opened"])
        return groups["price"].max().reset_index()

    def query_4(self):
        closed = self.closing_prices()
        closed["start"] = self.start(closed["opened"])
        averages = closed.groupby(["start", "category"])["price"].mean()
        return averages.rename("average").reset_index()

    def query_5(self):
        rows = []
        for shift in range(round(self.windows.window / self.windows.slide)):

            def window_start(times, shift=shift):
                return times.dt.floor(seconds(self.windows.slide)) - shift * seconds(self.windows.slide)

            kept = self.on_time(
                "bids", ("bids",), lambda times: window_start(times) + seconds(self.windows.window)
            )
            rows.append(kept.assign(start=window_start(kept["date_time"]))[["start", "auction"]])
        counts = pd.concat(rows).groupby(["start", "auction"]).size().rename("count").reset_index()
        ranked = counts.sort_values(["count", "auction"])
        return ranked.groupby("start").tail(1)[["start", "auction", "count"]]

    def query_6(self):
        closed = self.closing_prices().sort_values(["opened", "auction"])
        average = closed.groupby("seller")["price"].rolling(10, min_periods=1).mean().droplevel(0)
        return closed.assign(average=average)[["seller", "auction", "average"]]

    def query_7(self):
        bids = self.on_time("bids", ("bids",), self.window_end)
        columns = ["price", "auction", "bidder", "date_time"]
        bids = bids.assign(start=self.start(bids["date_time"])).sort_values(columns)
        return bids.groupby("start").tail(1)[["start", *columns]]

    def query_8(self):
        kinds = ("persons", "auctions")
        persons, auctions = (self.on_time(kind, kinds, self.window_end) for kind in kinds)
        persons = persons.assign(start=self.start(persons["date_time"]))[["id", "name", "start"]]
        sellers = auctions.assign(start=self.start(auctions["date_time"]))[["seller", "start"]]
        joined = persons.merge(
            sellers.drop_duplicates(), left_on=["id", "start"], right_on=["seller", "start"]
        )
        return joined[["id", "name", "start"]]

    def query_11(self):
        """Sessions one batch after the other: one that is closed takes no more bids."""
        gap, nothing = seconds(self.windows.session_gap), pd.Timestamp(0, tz="UTC")
        late = [*self.watermarks(("bids",)), nothing]
        sessions, done = {}, []
        for number, batch in enumerate(self.batches["bids"]):
            for bidder, times in batch[batch["date_time"] + gap > late[number]].groupby("bidder")[
                "date_time"
            ]:
                rows = [(time, time + gap, 1) for time in times]
                sessions[bidder] = merged(sessions.get(bidder, []) + rows)
            closing = late[number + 1]
            for bidder, rows in sessions.items():
                done += [(bidder, count, start, end) for start, end, count in rows if end <= closing]
                sessions[bidder] = [row for row in rows if row[1] > closing]
        open_ones = [(bidder, n, start, end) for bidder, rows in sessions.items() for start, end, n in rows]
        return pd.DataFrame(done + open_ones, columns=["bidder", "count", "start", "end"])

    def start(self, times):
        return times.dt.floor(seconds(self.windows.window))

    def window_end(self, times):
        return self.start(times) + seconds(self.windows.window)


def merged(rows):
    """Sessions (start, end, count) of one person, joined where they touch."""
    joined = []
    for start, end, count in sorted(rows):
        if joined and start <= joined[-1][1]:
            first, last, before = joined.pop()
            joined.append((first, max(last, end), before + count))
        else:
            joined.append((start, end, count))
    return joined


def seconds(value):
    return pd.Timedelta(seconds=value)
