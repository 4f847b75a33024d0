"""A driver of its own for one pipeline, which leads or stands by: ROOT LEASE. Says which, a line a change."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pandas as pd

from penstock.pipeline import Pipeline, files
from penstock.pipeline.spark_run import start_pipeline_session


def doubling(root: Path) -> Pipeline:
    """numbers → doubled → totals, the last by key."""
    pipeline = Pipeline("doubling", topics=files(str(root), files_per_batch=1))
    pipeline.topic("numbers", schema="number bigint")

    @pipeline.function(reads="numbers", writes="doubled", schema="number bigint, twice bigint",
                       parallelism=(1, 3))  # fmt: skip
    def double(batch):
        return batch.assign(twice=batch["number"] * 2)

    @pipeline.function(reads="doubled", writes="totals", schema="key bigint, total bigint", key="twice",
                       state="total bigint", parallelism=2)  # fmt: skip
    def total(key, batch, state):
        now = (state[0] if state else 0) + len(batch)
        return pd.DataFrame({"key": [key[0]], "total": [now]}), (now,)

    return pipeline


def main(root: str, lease: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    spark = start_pipeline_session("doubling", "local[2]", conf)
    settings = {
        "journal": f"{root}/journal.db",
        "runtime_directory": f"{root}/run",
        "policy_interval": "2s",
    }
    handle = doubling(Path(root) / "topics").run(spark, settings=settings, trigger="100ms", lease=lease)
    said = None
    while not ended.wait(0.1):
        if handle.leads is not said:
            said = handle.leads
            print("leads" if said else "stands by", flush=True)  # noqa: T201
    handle.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
