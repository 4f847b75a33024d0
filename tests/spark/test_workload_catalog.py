"""Every workload by its name, a key that becomes hot, and a part of the evidence, on real clusters."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import orjson
import pytest
from py4j.protocol import Py4JError

from penstock_lab.experiments.spark_query import list_batches, run_workload
from penstock_lab.ground.spark_cluster import ClusterShape, cluster
from penstock_lab.workloads.catalog import WORKLOADS, Ask
from penstock_lab.workloads.key_count import SkewedState, build_skewed_state, find_keys
from penstock_lab.workloads.source import start_counts
from tests.redis_server import redis_server
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.soak]
HELD = 2


@pytest.fixture(scope="module")
def redis():
    with redis_server() as address:
        yield address


def wait_for_records(query, records):
    def all_read():
        assert query.exception() is None
        batches = list_batches(query)
        return batches if batches and batches[-1].records_read >= records else None

    return wait_for(f"{records} records", all_read, seen=lambda: list_batches(query))


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_of_the_catalog_reads_what_it_is_offered(name, spark, redis, tmp_path):
    settings = {
        "max_records_per_batch": 400,
        "keys": 100,
        "service_seconds": 1e-4,
        "events_per_second": 100.0,
    }
    ask = Ask("constant:1000", start=time.time() - 60, redis=redis, **settings)
    with run_workload(spark, WORKLOADS[name], ask, tmp_path / "checkpoint", 0.0) as query:
        seen = wait_for_records(query, 800)
    assert [(batch.first, batch.records_read) for batch in seen[:2]] == [(0, 400), (400, 800)]


@pytest.mark.parametrize("name", ["word-count", "key-count", "paced", "nexmark-q2", "yahoo"])
def test_a_recorded_load_is_offered_to_every_kind_of_workload(name, spark, redis, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("second,value\n0,100\n4,25\n8,0\n")
    settings = {
        "max_records_per_batch": 400,
        "keys": 100,
        "service_seconds": 1e-4,
        "events_per_second": 100.0,
    }
    ask = Ask(f"recorded:path={trace}", start=time.time() - 60, redis=redis, **settings)
    with run_workload(spark, WORKLOADS[name], ask, tmp_path / "checkpoint", 0.0) as query:
        seen = wait_for_records(query, 500)
    assert [(batch.first, batch.records_read) for batch in seen] == [(0, 400), (400, 500)]


def test_a_key_that_becomes_hot_is_counted_like_the_others(spark, tmp_path):
    load = SkewedState("constant:1000", 0.0, share=0.5, even_records=400, bins=2, keys_a_bin=2, start=1000.0,
                       max_records_per_batch=400)  # fmt: skip
    counts, checkpoint = build_skewed_state(spark, load), str(tmp_path / "checkpoint")
    query = start_counts(counts, checkpoint, trigger_seconds=0, name="hot", sink="memory")
    wait_for_records(query, 800)
    query.stop()
    keys, read = find_keys(spark, load), list_batches(query)[-1].records_read
    newest = {}
    for row in spark.table("hot").collect():
        newest[row["key"]] = max(row["count"], newest.get(row["key"], 0))
    assert newest == Counter(keys[load.find_place(number)] for number in range(read))
    bins = spark.createDataFrame([(key,) for key in keys], "key long").selectExpr("pmod(hash(key), 2) bin")
    assert [row["bin"] for row in bins.collect()] == [0, 1, 0, 1]


def test_a_part_of_the_evidence_runs_on_a_cluster_of_its_own(tmp_path):
    program = Path(sys.executable).with_name("penstock")
    arguments = ["--quick", "--json", "--only", "bottlenecks", "--directory", str(tmp_path)]
    ended = subprocess.run([program, "evidence", *arguments], check=True, capture_output=True, timeout=240)
    (part,) = orjson.loads(ended.stdout.splitlines()[-1])["parts"]
    assert (part["status"], part["reason"]) == ("done", "")
    assert [finding["ours"] is not None for finding in part["result"]["findings"]] == [True] * 3
    assert "Plotly.newPlot" in (tmp_path / "evidence.html").read_text()


def test_after_the_drivers_java_died_the_next_cluster_has_a_new_one():
    shape = ClusterShape(executors=1, cores=1)
    with pytest.raises((Py4JError, OSError)), cluster(shape) as spark:
        os.kill(spark._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
        spark.range(1).count()
    with cluster(shape) as spark:
        assert spark.range(7).count() == 7
