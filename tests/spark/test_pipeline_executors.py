"""A pipeline with state whose executors come, go and die: nothing is lost, nothing stops."""

import threading
import time

import pandas as pd
import pytest

from penstock.journal.store import open_journal
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_views import SparkViews
from penstock.pipeline import Pipeline, files
from penstock.pipeline.state_moves import REST_SECONDS
from penstock_lab.ground.spark_cluster import executor_ids, kill_executor
from tests.spark.test_pipeline import read, settings, until

pytestmark = [pytest.mark.spark, pytest.mark.soak]
HELD = 1

KEYS, BINS, PER_FILE = 12, 4, 60


class Feeding(threading.Thread):
    """Writes a file of numbers twice a second, until stopped."""

    def __init__(self, topic):
        super().__init__(daemon=True)
        topic.mkdir(parents=True)
        self.written, self._topic, self._ended = 0, topic, threading.Event()

    def run(self):
        while not self._ended.wait(0.5):
            frame = pd.DataFrame({"number": range(self.written, self.written + PER_FILE)})
            hidden = self._topic / f".{self.written}.parquet"
            frame.to_parquet(hidden, index=False)
            hidden.rename(self._topic / f"{self.written:09d}.parquet")
            self.written += PER_FILE

    def stop(self):
        self._ended.set()
        self.join()


def sums(root):
    """numbers → keyed → sums: square them, then add them up by key."""
    pipeline = Pipeline("sums", topics=files(str(root), files_per_batch=20))
    pipeline.topic("numbers", schema="number bigint")

    @pipeline.function(
        reads="numbers", writes="keyed", schema="key bigint, square bigint", parallelism=(1, 4)
    )
    def square(batch):
        return pd.DataFrame({"key": batch["number"] % KEYS, "square": batch["number"] ** 2})

    @pipeline.function(reads="keyed", writes="sums", schema="key bigint, total bigint", key="key",
                       state="total bigint", parallelism=(1, BINS))  # fmt: skip
    def total(key, batch, state):
        now = (state[0] if state else 0) + int(batch["square"].sum())
        return pd.DataFrame({"key": [key[0]], "total": [now]}), (now,)

    return pipeline


def hosts(spark):
    """Executors that hold bins of the only query with state."""
    views = SparkViews(spark, SparkPlacement(spark), lambda _query: ()).full_views()
    return {worker for view in views for worker in view.placement().values()}


def await_state_on(spark, count, handle):
    """Until there are so many executors, and all of them hold state; looking costs, so not too often."""

    def there():
        time.sleep(1)
        here = set(executor_ids(spark))
        return len(here) == count and hosts(spark) == here

    until(there, [handle], 60 + REST_SECONDS)


def size(handle):
    return handle.status()["functions"]["total"]["parallelism"]


def final_sums(root):
    found = [pd.read_parquet(file) for file in (root / "sums").glob("*/*.parquet")]
    greatest = pd.concat(found).groupby("key")["total"].max() if found else {}
    return dict(greatest)


def test_state_and_executors_follow_the_instances_and_outlive_a_dead_executor(spark, tmp_path):
    root = tmp_path / "topics"
    feeding = Feeding(root / "numbers")
    feeding.start()
    options = {"settings": settings(tmp_path, control_socket=False), "trigger": "100ms"}
    handle = sums(root).run(spark, executors=(1, 2), **options)
    try:
        handle.scale("square", 1)
        handle.scale("total", 1)
        until(lambda: read(handle, "total") > 0, [handle])
        handle.scale("total", 3)
        await_state_on(spark, 2, handle)
        kill_executor(spark, sorted(hosts(spark), key=int)[-1])
        await_state_on(spark, 2, handle)
        # after a move that failed the state is looked at again when the rest is over
        until(lambda: size(handle) == 3, [handle], 60 + REST_SECONDS)
        handle.scale("total", 1)
        await_state_on(spark, 1, handle)
        feeding.stop()
        wanted = {key: sum(n**2 for n in range(key, feeding.written, KEYS)) for key in range(KEYS)}
        until(lambda: final_sums(root) == wanted, [handle], 120)
    finally:
        feeding.stop()
        handle.stop()
    journal = open_journal(tmp_path / "journal.db")
    by_hand = [record for record in journal.actions() if record.policy == "by hand"]
    assert {"total": 3} in [dict(record.planned) for record in by_hand]
    assert all(record.status is not None for record in journal.actions())
