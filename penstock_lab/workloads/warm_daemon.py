"""A Python daemon for executors that has its imports done before it forks workers.

Set `spark.python.daemon.module` to this module's name. Spark's own daemon imports pyarrow and the
user's modules in every worker after the fork, 0.7 s of processor time each here, which two cores
under fifteen slots feel in every executor that starts. Forking with pyarrow loaded is safe: its only
thread is jemalloc's, which is restarted after a fork.
"""

from __future__ import annotations

import importlib

PRELOADED = (
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.plan_data_source_read",
    "penstock_lab.workloads.yahoo",
    "penstock_lab.workloads.nexmark.streams",
    "penstock_lab.workloads.paced",
    "penstock_lab.workloads.key_count",
    "penstock_lab.workloads.source",
    "penstock_lab.workloads.scoring",
    "penstock_lab.workloads.word_count",
    "penstock.pipeline.spark_worker",
)


def main() -> None:
    """Import what the workers will need, then be Spark's daemon."""
    from pyspark.daemon import manager

    for name in PRELOADED:
        importlib.import_module(name)
    manager()


if __name__ == "__main__":
    main()
