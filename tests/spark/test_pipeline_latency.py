"""A latency target that is kept, live: functions on real executors, and records that say when they left."""

import threading
import time
from math import inf
from statistics import fmean

import pandas as pd
import pyarrow.parquet as pq
import pytest

from penstock.pipeline import Pipeline, files
from penstock.pipeline.batches import measure_latency
from tests.spark.test_pipeline import settings, until

pytestmark = [pytest.mark.spark, pytest.mark.soak]
HELD = 3

RATE = 30
COST_SECONDS = 0.05
"""A record: one and a half instances are busy, so one alone falls behind for ever."""
TARGET_SECONDS = 8.0
SPAN_SECONDS = 15.0


class Sender(threading.Thread):
    """Writes records to the topic from outside, a file every quarter of a second."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        folder.mkdir(parents=True)
        self._folder, self._ended = folder, threading.Event()

    def run(self):
        begun, sent = time.time(), 0
        while not self._ended.wait(0.25):
            due = int(RATE * (time.time() - begun))
            moments = pd.DataFrame({"sent": [time.time()] * (due - sent)})
            moments.to_parquet(self._folder / f".{due}.parquet", index=False)
            (self._folder / f".{due}.parquet").rename(self._folder / f"{due:09d}.parquet")
            sent = due

    def stop(self):
        self._ended.set()
        self.join()


def two_functions(root):
    pipeline = Pipeline("latency", topics=files(str(root)))
    pipeline.topic("requests", schema="sent double")

    @pipeline.function(reads="requests", writes="answers", schema="sent double", parallelism=(1, 4))
    def answer(batch):
        time.sleep(COST_SECONDS * len(batch))
        return batch

    @pipeline.function(reads="answers", writes="shown", schema="sent double", parallelism=1)
    def show(batch):
        return batch

    return pipeline


def followed(root, since):
    """The mean seconds from sending a record to the moment at which its last topic had it, of the newest."""
    ages = [
        one.stat().st_ctime - moment
        for one in (root / "shown").glob("show-*")
        if one.stat().st_ctime > since
        for file in one.glob("*.parquet")
        for moment in pq.read_table(file, columns=["sent"]).column("sent").to_pylist()
    ]
    return fmean(ages) if ages else inf


def test_a_latency_target_is_kept_on_functions(local_cluster, tmp_path):
    spark, root = local_cluster(held=HELD), tmp_path / "topics"
    sender = Sender(root / "requests")
    sender.start()
    chosen = settings(
        tmp_path,
        latency_target=f"{TARGET_SECONDS}s",
        warm_up_intervals=1,
        activation_intervals=1,
        catch_up="30s",
        fuse="never",
    )
    handle = two_functions(root).run(spark, policy="queueing", settings=chosen, trigger="500ms")
    try:
        handle.scale("answer", 1)
        until(lambda: followed(root, time.time() - 5) < inf, [handle])
        until(lambda: TARGET_SECONDS < followed(root, time.time() - 5) < inf, [handle])
        handle.scale("answer", None)
        until(lambda: followed(root, time.time() - SPAN_SECONDS) <= TARGET_SECONDS, [handle])
        since = time.time()
        until(lambda: time.time() > since + SPAN_SECONDS, [handle])
        seen = followed(root, since)
        told = measure_latency([one for one in handle.batches("show") if one.end > since])
        status = handle.status()
    finally:
        handle.stop()
        sender.stop()
    grown = status["functions"]["answer"]
    assert grown["parallelism"] > 1, status["decisions"]
    assert seen <= TARGET_SECONDS, status["decisions"]
    assert told == pytest.approx(seen, abs=1.0)
    # what counts as useful is the call alone, whatever else the machine has to do
    assert grown["service_seconds"] == pytest.approx(COST_SECONDS, rel=0.5)
