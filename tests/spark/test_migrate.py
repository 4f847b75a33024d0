"""State moves between executors while queries run, and no row of their output changes."""

import json
import threading
import time

import pytest

from penstock.act.actuator import ExecutorActuator
from penstock.act.scaling import ScalingSettings
from penstock.act.spark_executors import SparkExecutors
from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.policy import BINS, ExpectedEffect, MoveState, Scale
from penstock.journal.store import open_journal
from penstock.migrate.plan import read_plan
from penstock.migrate.settings import MigrationSettings
from penstock.migrate.spark_migrator import SparkMigrator
from penstock.migrate.spark_mover import SparkMover
from penstock.migrate.spark_placement import SparkPlacement
from penstock.migrate.spark_repartition import SparkBins
from penstock.migrate.spark_views import SparkViews
from penstock.observe.spark_source import SparkSource
from penstock.runtime.state_control import PARTITIONS, Repartitioning
from penstock_lab.ground.spark_cluster import executor_ids, hold_executors, kill_executor
from tests.spark.stateful_queries import BATCHES, QUERIES, expected_rows, start, write_files
from tests.spark.watching import watch
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 3

BINS_EACH = 3
PREPARED_IN = 3
"""Batches that a query may end before its migration has begun."""
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@pytest.fixture(scope="module")
def spark(local_cluster):
    conf = {"spark.sql.shuffle.partitions": str(BINS_EACH), CHANGELOG: "true"}
    session = local_cluster(held=HELD)
    for key, value in conf.items():
        session.conf.set(key, value)
    return session


@pytest.fixture(scope="module")
def files(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("events") / "files"
    write_files(spark, directory)
    return directory


def ended(query):
    assert query.exception() is None
    return query.lastProgress is not None and query.lastProgress["batchId"] >= BATCHES - 1


def run_all(spark, files, place, prepare, meanwhile):
    """All queries at once to the end of the files: name → its rows, sorted.

    No query gets beyond its first batches before `prepare` is done, however long that takes.
    """
    rows, prepared = {name: [] for name in QUERIES}, threading.Event()

    def hold(batch):
        assert batch < PREPARED_IN or prepared.wait(600)

    try:
        queries = {}
        for name in QUERIES:
            queries[name] = start(spark, name, files, place, rows[name], hold)
            # one at a time: Spark gives the Python process of `transformed` ten seconds to start
            wait_for(f"a batch of {name}", lambda query=queries[name]: query.recentProgress)
        prepare(queries)
    finally:
        prepared.set()
    meanwhile()
    wait_for("the end of the files", lambda: all(ended(query) for query in queries.values()), patience=180)
    for query in queries.values():
        query.stop()
    return {name: sorted(map(str, found)) for name, found in rows.items()}


def expect(name):
    """What `run_all` and a single run must return, sorted."""
    return sorted(map(str, expected_rows(name)))


def views_of(spark):
    return SparkViews(spark, SparkPlacement(spark), lambda query: ())


def moves_each_batch(view, first, last):
    """From batch to batch one bin of each stage to the next executor."""
    at, workers = view.placement(), sorted(worker.worker for worker in view.workers)
    moves = []
    for batch in range(first, last):
        for bin_ in sorted(at):
            if bin_.partition == batch % BINS_EACH:
                target = workers[(workers.index(at[bin_]) + 1) % len(workers)]
                moves.append((batch, bin_, at[bin_], target))
                at[bin_] = target
    return moves


def test_every_kind_of_state_moves_and_no_row_is_lost_doubled_or_changed(spark, files, tmp_path):
    migrators, outcomes = {}, {}

    def begin(queries):
        for query in queries.values():
            wait_for(
                "two batches", lambda query=query: (query.lastProgress or {"batchId": -1})["batchId"] >= 1
            )
        views = {view.name: view for view in views_of(spark).full_views()}
        for name in queries:
            view = views[name]
            plan = read_plan(view.query, moves_each_batch(view, view.batch + 2, BATCHES - 2), view)
            migrators[name] = SparkMigrator(views_of(spark))
            migrators[name].begin([plan])

    def await_end():
        for name, migrator in migrators.items():
            (outcomes[name],) = wait_for(f"the end of {name}'s moves", migrator.poll, patience=180)

    found = run_all(spark, files, tmp_path, begin, await_end)
    for name in QUERIES:
        assert found[name] == expect(name), name
    # how many moves there is time for depends on the machine
    assert all(outcome.moved for outcome in outcomes.values()), outcomes
    assert sum(len(outcome.moved) for outcome in outcomes.values()) >= 8


def test_a_target_that_is_killed_in_mid_migration_costs_no_row(spark, files, tmp_path):
    rows = []
    query = start(spark, "counts", files, tmp_path, rows)
    wait_for("two batches", lambda: (query.lastProgress or {"batchId": -1})["batchId"] >= 1)
    views = views_of(spark)
    (view,) = views.full_views()
    victim = max((worker.worker for worker in view.workers), key=int)
    moves = [
        (view.batch + 2 + number, bin_, source, victim)
        for number, (bin_, source) in enumerate(sorted(view.placement().items()))
        if source != victim
    ]
    migrator = SparkMigrator(views)
    migrator.begin([read_plan(view.query, moves, view)])
    wait_for("the first move", lambda: migrator.standing().moved >= 1, every=0.05)
    kill_executor(spark, victim)
    (outcome,) = wait_for("the end of the migration", migrator.poll)
    wait_for("the end of the files", lambda: ended(query), patience=180)
    query.stop()
    assert sorted(map(str, rows)) == expect("counts")
    # how far it got depends on when the target died; what did not get there says why
    assert len(outcome.moved) + len(outcome.given_up) == len(moves)
    assert all(reason for _, reason in outcome.given_up)


def start_endless(spark, place):
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", QUERIES["counts"][2])
    endless = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).load()
    counting = endless.groupBy((endless.value % 97).alias("key")).count().writeStream.queryName("endless")
    return counting.outputMode("update").format("noop").option("checkpointLocation", str(place)).start()


def migrate(views, view, moves):
    migrator = SparkMigrator(views)
    migrator.begin([read_plan(view.query, moves, view)])
    (outcome,) = wait_for("the end of the migration", migrator.poll)
    return outcome


def test_a_plan_that_is_out_of_date_moves_bins_from_where_they_are(spark, tmp_path):
    hold_executors(spark, 3)
    query = start_endless(spark, tmp_path / "endless")
    wait_for("two batches", lambda: (query.lastProgress or {"batchId": -1})["batchId"] >= 1)
    views = views_of(spark)
    (view,) = views.full_views()
    assert len(view.placement()) == BINS_EACH
    bin_, source = min(view.placement().items())
    there, elsewhere = sorted({worker.worker for worker in view.workers} - {source})[:2]
    assert migrate(views, view, [(view.batch, bin_, source, elsewhere)]).status is Status.DONE
    # the view is as old as before: it says that the bin is at its first place
    outcome = migrate(views, view, [(view.batch, bin_, source, there)])
    query.stop()
    assert [(move.bin, move.source, move.target) for move in outcome.moved] == [(bin_, elsewhere, there)]
    assert f"found at executor {elsewhere}, not at {source}" in outcome.detail


def act(actuator, action):
    actuator.begin(time.time(), action)
    return wait_for("the end of the action", lambda: actuator.poll(time.time()))


def test_a_new_executor_gets_its_share_and_gives_it_back_before_it_goes(spark, tmp_path):
    """Scale out, spread, scale in: after the spreading all work, before the release one is empty."""
    hold_executors(spark, 3)  # whoever replaces a dead one is there: it would come in the middle of this
    hold_executors(spark, 2)
    query = start_endless(spark, tmp_path / "endless")
    source = SparkSource(spark)
    mover = SparkMover(spark, MigrationSettings(), source.state_tasks)
    actuator = ExecutorActuator(SparkExecutors(spark), ScalingSettings(), source.state_bins, mover)
    source.observe(time.time())
    watch(source, "endless", lambda seen: len(seen.batches) > 0)

    grown = act(actuator, Scale({EXECUTORS: 3}, "a test", ExpectedEffect("")))
    assert grown.status is Status.DONE
    newcomer = max(executor_ids(spark), key=int)
    watch(source, "endless", lambda seen: len(seen.batches) > 0)
    assert source.state_bins().get(newcomer, 0) == 0

    move = wait_for("a proposal", lambda: mover.propose(time.time(), source.observe(time.time())))
    assert isinstance(move, MoveState) and {one.target for one in move.moves} == {newcomer}
    spread = act(actuator, move)
    assert (spread.status, spread.observed) == (Status.DONE, {BINS: len(move.moves)})
    # Spark lists the tasks of a batch a moment after it reports the batch: the next one shows them, then
    watch(source, "endless", lambda seen: source.state_bins().get(newcomer, 0) == len(move.moves))

    shrunk = act(actuator, Scale({EXECUTORS: 2}, "a test", ExpectedEffect("")))
    assert shrunk.status is Status.DONE and "state was moved away" in shrunk.detail
    (view,) = mover.views()
    assert set(view.placement().values()) <= set(executor_ids(spark))
    before = view.placement()
    wait_for("another batch", lambda: query.lastProgress["batchId"] > view.batch + 1)
    (after,) = mover.views()
    assert after.placement() == before
    mover.close()
    query.stop()


def test_a_query_gets_more_bins_by_hand_and_counts_on(spark, tmp_path):
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", QUERIES["counts"][2])
    endless = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 200).load()
    told = {}

    def keep(frame, batch):
        told[batch] = {row["key"]: row["count"] for row in frame.collect()}

    counting = endless.groupBy((endless.value % 53).alias("key")).count().writeStream.foreachBatch(keep)
    place = str(tmp_path / "checkpoint")
    named = counting.queryName("wider").outputMode("update").option("checkpointLocation", place)
    writer = named.trigger(processingTime="2 seconds")
    started = [writer.start()]
    wait_for("two batches", lambda: (started[-1].lastProgress or {"batchId": -1})["batchId"] >= 1)
    journal = open_journal(tmp_path / "journal.db")
    acting = Repartitioning("app", journal, SparkBins(spark, views_of(spark)))
    assert (acting.plan("wider", 5).bins_before, acting.plan("wider", 5).bins_after) == (BINS_EACH, 5)

    outcome = acting.perform("wider", 5, lambda: started.append(writer.start()))

    assert outcome.status is Status.DONE and journal.actions("app")[0].planned == {PARTITIONS: 5}
    wait_for("two more batches", lambda: len(started[-1].recentProgress) >= 2)
    (view,) = views_of(spark).full_views()
    assert {state.bin.partition for state in view.bins} == set(range(5))
    started[-1].stop()
    newest = started[-1].lastProgress
    read = json.loads(newest["sources"][0]["endOffset"])["offset"]
    # a batch that the stop has broken off may have told its counts, and is not reported
    counted = {}
    for batch in sorted(number for number in told if number <= newest["batchId"]):
        counted |= told[batch]
    assert sum(counted.values()) == read
