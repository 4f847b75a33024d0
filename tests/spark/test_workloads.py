"""The load and the word count on a real cluster: exact answers, also across a restart."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.simulate.profiles import parse_profile
from penstock_lab.experiments.spark_query import RunLength, list_batches, run_load, run_workload
from penstock_lab.workloads.catalog import Ask
from penstock_lab.workloads.catalog import find_workload as workload_named
from penstock_lab.workloads.key_count import KeyCount, build_key_count
from penstock_lab.workloads.records import count_words
from penstock_lab.workloads.source import FORMAT, LoadSource, start_counts
from penstock_lab.workloads.state_stores import HDFS_STATE
from penstock_lab.workloads.word_count import WordCount, start_word_count
from penstock_lab.workloads.yahoo import AdEvents, find_campaign, read_results
from tests.redis_server import redis_server
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 2


def workload(**changes):
    settings = {"profile": "constant:200", "seconds_per_sentence": 1e-4, "seconds_per_word": 1e-5, "seed": 11}
    return WordCount(**{**settings, "source_partitions": 3, "count_partitions": 3, **changes})


def records_read(query):
    progress = query.lastProgress
    if progress is None:
        return 0
    return json.loads(progress.json)["sources"][0]["endOffset"]["records"]


def wait_for_records(query, records):
    def all_read():
        assert query.exception() is None
        return records_read(query) >= records

    wait_for(f"{records} records", all_read, seen=lambda: records_read(query))


def counts_in(spark, table):
    return {row["word"]: row["count"] for row in spark.table(table).collect()}


def test_a_restart_from_the_checkpoint_loses_and_doubles_nothing(spark, tmp_path):
    checkpoint = str(tmp_path / "checkpoint")
    load = workload(max_records=1000)
    first = start_word_count(spark, load, checkpoint, trigger_seconds=1, name="restarted", sink="memory")
    wait_for_records(first, 200)
    first.stop()
    second = start_word_count(spark, load, checkpoint, trigger_seconds=1, name="restarted", sink="memory")
    wait_for_records(second, 1000)
    sources = json.loads(second.lastProgress.json)["sources"][0]
    second.stop()
    assert counts_in(spark, "restarted") == count_words(1000, seed=11)
    started = json.loads((Path(checkpoint) / "offsets" / "0").read_text().splitlines()[-1])
    assert sources["endOffset"]["start_ms"] == started["start_ms"]


def test_a_bounded_batch_reports_its_backlog(spark, tmp_path):
    spark.dataSource.register(LoadSource)
    options = {"profile": "constant:100", "start": "1000", "maxRecords": "500", "maxRecordsPerBatch": "60"}
    stream = spark.readStream.format(FORMAT).options(**options).load()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    wait_for_records(query, 60)
    first = next(
        source
        for progress in query.recentProgress
        if (source := json.loads(progress.json)["sources"][0])["endOffset"]["records"] == 60
    )
    wait_for_records(query, 500)
    rows = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    query.stop()
    assert first["latestOffset"]["records"] == 500
    assert rows == [60] * 8 + [20]


def test_a_preloaded_key_count_holds_every_key_and_equals_its_reference(spark, tmp_path):
    load = KeyCount(
        "constant:2000", keys=3000, bins=2, preload_per_batch=2000, hot_share=0.3, max_records=2500
    )
    counts, checkpoint = build_key_count(spark, load), str(tmp_path / "checkpoint")
    query = start_counts(counts, checkpoint, trigger_seconds=1, name="keyed", sink="memory")
    wait_for_records(query, 5500)
    rows = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    state = query.lastProgress.stateOperators[0]
    query.stop()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", HDFS_STATE)
    newest = {row["key"]: row["count"] for row in spark.table("keyed").collect()}
    assert rows[:2] == [2000, 1000]
    assert state.numRowsTotal == 3000
    assert "RocksDB" in str(state.customMetrics) or "rocksdb" in str(state.customMetrics)
    assert newest == load.count_keys(5500)


def test_the_yahoo_benchmark_counts_every_view_once_in_redis(spark, tmp_path):
    with redis_server() as redis:
        ask = Ask("constant:3000", start=time.time(), seed=9, redis=redis)
        with run_workload(spark, workload_named("yahoo"), ask, tmp_path / "checkpoint", 1.0) as query:
            wait_for_records(query, 15_000)
        read = list_batches(query)[-1].records_read
        found = {(one.campaign, one.start): one.count for one in read_results(redis)}
        late = [one.latency for one in read_results(redis)]
    events = AdEvents(parse_profile(ask.profile), round(ask.start * 1000) / 1000, seed=9).batch(0, read)
    views = [row for row in events.to_pylist() if row["event_type"] == "view"]
    windows = [(find_campaign(row["ad"]), row["event_time"].timestamp() // 10 * 10) for row in views]
    assert found == Counter(windows)
    assert all(latency > -10 for latency in late)


def test_a_paced_operator_keeps_up_with_less_than_it_can(spark, tmp_path):
    ask = Ask("constant:300", 0.0, shuffle_partitions=4, service_seconds=0.002, skew=0.25)
    found = run_load(spark, workload_named("paced"), ask, tmp_path, RunLength(4, 5, 1.0), lambda _: None)
    assert found.offered_per_second == pytest.approx(300)
    # more than is offered where a slow start is made up for
    assert found.records_per_second >= 0.7 * 300
    assert 0 < found.p50_ms <= found.p95_ms <= found.p99_ms
