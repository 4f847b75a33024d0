"""One query's reports become windows: rates, backlog, instances, with bounded memory."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.metrics import RunningBatch, RunningStage, StageExecution
from penstock.observe.collector import QueryCollector
from penstock.observe.observed_batch import ObservedBatch
from penstock.observe.progress import BatchProgress, BatchTimeline, SourceProgress
from penstock.observe.running import BegunBatch, ObservedRun
from penstock.observe.sources.file_log import LoggedFile
from penstock.observe.sources.files import FilesSeen
from penstock.observe.sources.listing import ListedFile
from penstock.observe.stages import OperatorOutline, TaskTable

CHAIN = (OperatorOutline("scan", (), False), OperatorOutline("count", ("scan",), True))
RATE_MICRO_BATCH = "RatePerMicroBatchStream[rowsPerBatch=50"
KAFKA = "KafkaV2[Subscribe[events]]"
SOCKET = "TextSocketV2[host: localhost, port: 9999]"
FILES = "FileStreamSource[file:/data/in]"


def collector(period=5.0, unscalable=frozenset()):
    return QueryCollector("id", "words", "run", period, unscalable)


def offset(records):
    return {"offset": records}


def source(records, end, latest=None, description=RATE_MICRO_BATCH):
    return SourceProgress(description, None, end, latest, records)


def table(operator, read, written=0.0, useful=1.0, executors=("0", "0")):
    tasks = len(executors)

    def spread(total):
        return np.full(tasks, total / tasks)

    stage = StageExecution(operator, spread(read), spread(written), spread(useful), spread(0.2), 0.5)
    return TaskTable(stage, executors, 0.0, 0.5)


def progress(batch_id, start, *sources, seconds=2.0, executed=True):
    timeline = BatchTimeline(0.0, 0.1, seconds - 0.2, 0.1, seconds)
    records = sum(each.input_records for each in sources)
    return BatchProgress("run", batch_id, start, timeline, records, sources, executed, 0)


def chain_batch(batch_id, start, records, total, latest=None, seconds=2.0):
    """A batch of the chain that read `records`, and with it `total` of what is offered."""
    told = source(records, offset(total), None if latest is None else offset(latest))
    tables = (table("scan", records, records), table("count", records, executors=("0", "1")))
    return ObservedBatch(progress(batch_id, start, told, seconds=seconds), tables, slots=4)


def scan_batch(batch_id, start, told):
    """A batch of a query that only reads."""
    return ObservedBatch(progress(batch_id, start, told), (table("scan", told.input_records),), 4)


def idle(batch_id, start, *sources):
    return ObservedBatch(progress(batch_id, start, *sources, seconds=0.01, executed=False), (), 4)


def test_no_window_until_a_batch_has_shown_the_operators():
    words = collector()
    assert words.window(0, 10) is None
    words.add(idle(0, 1.0, source(0, offset(0))), ())
    assert words.window(0, 10) is None


def test_a_window_of_a_chain():
    words = collector(unscalable=frozenset({"count"}))
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.add(chain_batch(1, 5.0, 500, 1000), CHAIN)
    window = words.window(0.0, 10.0)
    assert window.graph.edges == (("scan", "count"),)
    assert [operator.scalable for operator in window.graph.operators] == [True, False]
    assert [batch.batch_id for batch in window.batches] == [0, 1]
    assert window.batches[0].slots == 4
    rate = window.sources["scan"]
    assert (rate.offered_per_second, rate.observed_per_second, rate.backlog_records) == (100, 100, 0)
    assert window.latency_seconds == 2.5 + 2.0


def test_the_batches_of_a_window_have_the_tasks_of_their_stages():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.add(chain_batch(1, 5.0, 300, 800), CHAIN)
    stages = [stage for batch in words.window(0.0, 10.0).batches for stage in batch.stages]
    assert [stage.operator for stage in stages] == ["scan", "count"] * 2
    assert [stage.records_in.tolist() for stage in stages] == [[250, 250]] * 2 + [[150, 150]] * 2
    assert sum(stage.useful_seconds.sum() for stage in stages) == pytest.approx(4.0)


def begun_batch(batch_id, at, latest, end=None):
    """A batch of Kafka that has begun: what was offered as it did, and how far it will read."""
    told = source(0, offset(latest if end is None else end), offset(latest))
    return BegunBatch(batch_id, at, (told,))


def test_a_batch_that_has_begun_tells_what_is_offered_before_it_ends():
    """Its report comes two minutes later: until then the rate of before, a third of it, was believed."""
    words = collector()
    words.add(chain_batch(0, 0.0, 1000, 1000), CHAIN)
    words.add(chain_batch(1, 10.0, 10_000, 11_000, seconds=45.0), CHAIN)
    assert words.window(0.0, 56.0).sources["scan"].offered_per_second == pytest.approx(1000)
    words.note_begun(begun_batch(2, 55.0, 146_000))
    seen = words.window(56.0, 66.0).sources["scan"]
    assert seen.offered_per_second == pytest.approx(3000)
    # what the running batch reads is not read yet: 135,000 and 11 s at 3,000/s, but for two periods of 5 s
    assert seen.backlog_records == pytest.approx(135_000 + 11 * 3000 - 2 * 5 * 3000)


def test_a_batch_that_has_begun_is_counted_once():
    plain, told = collector(), collector()
    for words in (plain, told):
        words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    told.note_begun(begun_batch(1, 5.0, 1500, end=1000))
    told.note_begun(begun_batch(1, 5.0, 1500, end=1000))
    assert told.window(0.0, 6.0).sources["scan"].offered_per_second == pytest.approx(200)
    for words in (plain, told):
        words.add(chain_batch(1, 5.0, 500, 1000, latest=1500), CHAIN)
    told.note_begun(begun_batch(1, 5.0, 1500, end=1000))
    assert told.window(0.0, 10.0).sources == plain.window(0.0, 10.0).sources
    assert told.window(0.0, 10.0).latency_seconds == plain.window(0.0, 10.0).latency_seconds


def test_a_trigger_with_nothing_to_do_bears_the_number_of_the_batch_to_come():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.add(idle(1, 5.0, source(0, offset(500))), ())
    words.note_begun(begun_batch(1, 10.0, 1500))
    assert words.window(0.0, 12.0).sources["scan"].offered_per_second > 0


def test_a_window_holds_the_batches_that_ended_in_it():
    words = collector()
    for number in range(4):
        words.add(chain_batch(number, 5.0 * number, 100, 100 * (number + 1)), CHAIN)
    assert [batch.batch_id for batch in words.window(7.0, 12.0).batches] == [2]
    assert [batch.batch_id for batch in words.window(6.9, 12.0).batches] == [1, 2]


def test_a_window_without_a_batch_keeps_the_rates_last_known():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.add(chain_batch(1, 5.0, 500, 1000), CHAIN)
    words.window(0.0, 10.0)
    later = words.window(10.0, 20.0)
    assert later.batches == ()
    assert later.latency_seconds is None
    assert later.sources["scan"].observed_per_second == 100
    assert later.sources["scan"].offered_per_second == 100


@pytest.mark.parametrize("late_start", [2.0, 5.0])
def test_reports_out_of_order_or_twice_are_dropped_with_a_warning(late_start):
    words = collector()
    words.add(chain_batch(1, 5.0, 500, 1000), CHAIN)
    words.add(chain_batch(0, late_start, 700, 500), CHAIN)
    assert words.warnings == ["a report of batch 0 came twice or out of order and was dropped"]
    assert [batch.batch_id for batch in words.window(0.0, 10.0).batches] == [1]


def test_a_query_that_falls_behind_shows_its_backlog():
    words = collector(period=5.0)
    words.add(chain_batch(0, 0.0, 500, 500, latest=500), CHAIN)
    words.add(chain_batch(1, 5.0, 500, 1000, latest=1500), CHAIN)
    words.add(chain_batch(2, 10.0, 500, 1500, latest=2500), CHAIN)
    rate = words.window(0.0, 12.0).sources["scan"]
    assert rate.offered_per_second == 200
    assert rate.observed_per_second == 100
    # 1,000 left unread + 2 s at 200/s − two periods of 5 s at 200/s is below 0; 10 s later it is not
    assert rate.backlog_records == 0
    assert words.window(0.0, 22.0).sources["scan"].backlog_records == 1000 + 12 * 200 - 2000


def test_idle_triggers_carry_the_offer_on_and_are_no_batches():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.add(chain_batch(1, 5.0, 500, 1000), CHAIN)
    words.add(idle(2, 15.0, source(0, offset(1000))), ())
    window = words.window(0.0, 20.0)
    assert len(window.batches) == 2
    assert window.sources["scan"].offered_per_second == pytest.approx(500 / 15)


def test_batches_without_fetched_tasks_count_for_rates_alone():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    without = ObservedBatch(progress(1, 5.0, source(300, offset(800))), (), 4)
    words.add(without, ())
    window = words.window(0.0, 10.0)
    assert [batch.batch_id for batch in window.batches] == [0]
    assert window.sources["scan"].observed_per_second == 80


def test_a_new_layout_replaces_the_old_one_and_its_batches():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    alone = ObservedBatch(progress(1, 5.0, source(500, offset(1000))), (table("scan", 500),), 4)
    words.add(alone, CHAIN[:1])
    window = words.window(0.0, 10.0)
    assert [operator.name for operator in window.graph.operators] == ["scan"]
    assert [batch.batch_id for batch in window.batches] == [1]


def test_an_unknown_source_offers_what_was_read_and_says_so():
    words = collector()
    for number in range(3):
        told = source(100, number, description=SOCKET)
        words.add(scan_batch(number, 5.0 * number, told), CHAIN[:1])
    assert words.window(0.0, 15.0).sources["scan"].offered_per_second == 20
    assert words.warnings == [f"what is offered to {SOCKET} is unknown: what was read is taken instead"]


def test_reports_that_spark_no_longer_had_do_not_make_an_unknown_offer_look_small():
    words = collector()
    for number, start in [(0, 0.0), (1, 5.0), (90, 450.0), (91, 455.0)]:
        told = source(100, number, description=SOCKET)
        words.add(scan_batch(number, start, told), CHAIN[:1])
    assert words.window(10.0, 460.0).sources["scan"].offered_per_second == 20


def test_kafka_partitions_that_join_add_to_the_offer():
    words = collector()
    for number in range(2):
        end = {"events": {"0": 100 * number}}
        latest = {"events": {"0": 200 * number, "1": 300 * number}}
        told = source(100, end, latest, KAFKA)
        words.add(scan_batch(number, 10.0 * number, told), CHAIN[:1])
    rate = words.window(0.0, 10.0 + 2.0).sources["scan"]
    assert rate.offered_per_second == 50
    assert words.window(0.0, 40.0).sources["scan"].backlog_records == 400 + 30 * 50 - 2 * 50 * 5


def files_batch(number, start, records):
    told = SourceProgress(
        FILES, {"logOffset": number - 1} if number else None, {"logOffset": number}, None, records
    )
    return scan_batch(number, start, told)


def taken(entry, *moments):
    return tuple(LoggedFile(f"/data/in/{entry}-{n}", at, entry) for n, at in enumerate(moments))


def test_files_that_wait_are_a_backlog_in_records():
    words = collector()
    waiting = {f"/data/in/{n}": ListedFile(0.0) for n in range(30)}
    logged = (LoggedFile("/data/in/0", 0.0, 0),)
    words.look([FILES], {0: FilesSeen(2.5, logged, waiting)})
    words.add(files_batch(0, 0.0, 100), CHAIN[:1])
    rate = words.window(0.5, 2.5).sources["scan"]
    assert rate.offered_per_second == 0
    assert rate.backlog_records == 2900
    words.look([FILES], {0: FilesSeen(7.5, (LoggedFile("/data/in/1", 0.0, 1),), waiting)})
    words.add(files_batch(1, 5.0, 100), CHAIN[:1])
    assert words.window(2.5, 7.5).sources["scan"].backlog_records == 2800
    assert [batch.files for batch in words.window(2.5, 7.5).batches] == [1]


def test_files_that_arrive_are_an_offer_in_records():
    words = collector()
    words.look([FILES], {0: FilesSeen(2.5, taken(0, 0.5), {})})
    words.add(files_batch(0, 0.0, 100), CHAIN[:1])
    waiting = {f"/data/in/new{n}": ListedFile(4.0 + n) for n in range(9)}
    words.look([FILES], {0: FilesSeen(12.5, taken(1, 3.0), waiting)})
    words.add(files_batch(1, 5.0, 100), CHAIN[:1])
    assert words.window(2.5, 12.5).sources["scan"].offered_per_second == pytest.approx(100)


def test_a_problem_with_the_files_is_a_warning_and_the_rate_unknown():
    words = collector()
    words.look([FILES], {0: FilesSeen(2.5, taken(0, 0.5), {})})
    words.add(files_batch(0, 0.0, 100), CHAIN[:1])
    words.look([FILES], {0: FilesSeen(12.5, problem="/data/in is gone")})
    assert words.warnings == ["query words: /data/in is gone"]
    assert math.isnan(words.window(2.5, 12.5).sources["scan"].offered_per_second)


def test_files_tell_the_latency_by_when_they_were_written():
    words = collector()
    words.look([FILES], {0: FilesSeen(2.5, taken(0, -4.0, -2.0), {})})
    words.add(files_batch(0, 0.0, 100), CHAIN[:1])
    window = words.window(0.0, 2.5)
    assert (window.latency_seconds, window.oldest_latency_seconds) == (5.0, 6.0)
    assert window.latency_by == "arrivals at the source"


def test_a_join_with_a_batch_that_only_moves_the_watermark_on():
    layout = (
        OperatorOutline("b-fast", (), False),
        OperatorOutline("a-slow", (), False),
        OperatorOutline("join", ("b-fast", "a-slow"), True),
    )
    words = collector()
    for number in range(3):
        fast, slow = (4000, 50) if number < 2 else (0, 0)
        told = (source(slow, offset(50 * (number + 1))), source(fast, offset(4000 * (number + 1))))
        tables = (table("b-fast", fast), table("a-slow", slow), table("join", fast + slow))
        words.add(ObservedBatch(progress(number, 5.0 * number, *told), tables, 4), layout)
    sources = words.window(0.0, 15.0).sources
    assert sources["a-slow"].offered_per_second == 10
    assert sources["b-fast"].offered_per_second == 800


def test_executors_of_state_are_those_of_the_newest_stateful_stage():
    words = collector()
    assert words.executors_of_state() == {}
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    assert words.executors_of_state() == {"0": 1, "1": 1}


def test_when_the_executors_last_worked():
    """A batch without records warms nothing up, and a later batch is not before."""
    words = collector()
    first, empty, third = (chain_batch(n, 5.0 * n, records, 500) for n, records in enumerate([500, 0, 9]))
    assert words.working_before(first.progress.start) == math.inf
    for batch in (first, empty, third):
        words.add(batch, CHAIN)
    assert words.working_before(third.progress.start) == 0.0
    assert words.working_before(first.progress.start) == math.inf


def size_of(value, seen):
    """Bytes of an object with all that it holds."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    held = list(getattr(value, "__dict__", {}).values())
    held += [getattr(value, slot) for slot in getattr(type(value), "__slots__", ()) if hasattr(value, slot)]
    if isinstance(value, dict):
        held += [*value.keys(), *value.values()]
    elif hasattr(value, "__iter__") and not isinstance(value, str | bytes | np.ndarray):
        held += list(value)
    return sys.getsizeof(value) + sum(size_of(each, seen) for each in held)


def test_memory_is_bounded_over_thousands_of_batches():
    words = collector()
    sizes = {}
    for number in range(3_000):
        words.add(chain_batch(number, 5.0 * number, 100, 100 * (number + 1)), CHAIN)
        if number in (199, 2_999):
            words.window(5.0 * number - 20, 5.0 * number + 5)
            words.warnings.clear()
            sizes[number] = size_of(words, set())
    assert sizes[2_999] < 1.05 * sizes[199]


reports = st.tuples(st.floats(0, 1000), st.integers(0, 10**6), st.booleans())


@given(st.lists(reports, min_size=1, max_size=30), st.floats(0, 1000), st.floats(0.1, 500))
def test_whatever_comes_in_whatever_order_a_window_is_sound(reports, start, length):
    words = collector()
    total = 0
    for number, (at, records, detailed) in enumerate(reports):
        total += records
        batch = chain_batch(number, at, records, total)
        words.add(batch if detailed else ObservedBatch(batch.progress, (), 4), CHAIN if detailed else ())
    window = words.window(start, start + length)
    if window is None:
        assert not reports[0][2]
        return
    assert all(start < batch.start + batch.seconds <= start + length for batch in window.batches)
    for rate in window.sources.values():
        assert not rate.offered_per_second < 0
        assert not rate.observed_per_second < 0
        assert rate.backlog_records >= 0


def test_the_first_batch_with_records_has_none_before_it():
    query = collector()
    empty, first = chain_batch(0, 100.0, 0, 0), chain_batch(1, 105.0, 50, 50)
    query.add(empty, CHAIN)
    assert query.working_before(first.progress.start) == math.inf
    query.add(first, CHAIN)
    assert query.working_before(chain_batch(2, 110.0, 50, 100).progress.start) == 105.0


def test_the_timeline_of_the_newest_batch_ends_with_what_it_left_idle():
    query = collector(period=5.0)
    query.add(chain_batch(0, 0.0, 500, 500, seconds=2.0), CHAIN)
    timeline = query.window(0.0, 10.0).timeline_seconds
    assert list(timeline) == ["offsets", "planning", "execution", "commit", "other", "idle"]
    assert timeline["idle"] == 3.0
    assert sum(timeline.values()) == pytest.approx(5.0)


def test_one_odd_batch_does_not_change_the_operators():
    """A batch of one record may run a broadcast where all others shuffle."""
    words = collector()
    for number in range(3):
        words.add(chain_batch(number, 5.0 * number, 500, 500 * (number + 1)), CHAIN)
    odd = ObservedBatch(progress(3, 15.0, source(1, offset(1501))), (table("scan", 1),), 4)
    words.add(odd, CHAIN[:1])
    window = words.window(0.0, 20.0)
    assert [operator.name for operator in window.graph.operators] == ["scan", "count"]
    assert [batch.batch_id for batch in window.batches] == [0, 1, 2]
    words.add(replace(odd, progress=progress(4, 20.0, source(1, offset(1502)))), CHAIN[:1])
    assert [operator.name for operator in words.window(0.0, 25.0).graph.operators] == ["scan"]


def test_idle_is_told_by_reports_and_not_by_their_lack():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.add(chain_batch(1, 5.0, 500, 1000), CHAIN)
    words.is_working = False
    assert words.window(0.0, 100.0).idle_seconds == 0
    for number in range(1, 200):
        words.add(idle(2, 5.0 + 10 * number, source(0, offset(1000))), ())
    window = words.window(1990.0, 2000.0)
    assert window.idle_seconds == 1990
    assert window.batches == ()
    rate = window.sources["scan"]
    assert (rate.offered_per_second, rate.observed_per_second, rate.backlog_records) == (0, 0, 0)
    words.is_working = True
    assert words.window(1990.0, 2000.0).idle_seconds == 0


def test_what_waits_unread_is_no_idleness():
    words = collector()
    for number in range(4):
        words.add(chain_batch(number, 5.0 * number, 100, 100 * (number + 1), latest=5000), CHAIN)
    words.is_working = False
    assert words.window(0.0, 20.0).idle_seconds == 0


def test_a_source_of_which_nothing_is_known_is_never_idle():
    words = collector()
    for number in range(4):
        told = source(0, number, description=SOCKET)
        words.add(scan_batch(number, 5.0 * number, told), CHAIN[:1])
    words.is_working = False
    assert words.window(0.0, 20.0).idle_seconds == 0


def running_batch(done=2, total=4, seconds=30.0):
    column = np.full(done, 25.0)
    execution = StageExecution("scan", column, column, column, column, 10.0) if done else None
    scan = RunningStage("scan", total, done, 2, float(column.sum()), execution, np.array([3.0, 4.0]))
    count = RunningStage("count", 2, 0, 0, 0.0)
    return RunningBatch(7, 100.0, seconds, 4, (scan, count))


def test_a_running_batch_is_part_of_the_window():
    words = collector()
    words.add(chain_batch(0, 0.0, 500, 500), CHAIN)
    words.running = ObservedRun(running_batch(), CHAIN)
    assert words.window(0.0, 10.0).running == words.running.batch
    unknown = OperatorOutline("other", (), False)
    words.running = ObservedRun(running_batch(), (unknown,))
    assert [stage.operator for stage in words.window(0.0, 10.0).running.stages] == ["scan", "count"]


def test_the_first_batch_shows_the_operators_while_it_runs():
    words = collector()
    words.running = ObservedRun(running_batch(), CHAIN, jobs=3)
    window = words.window(110.0, 130.0)
    assert window.graph.edges == (("scan", "count"),)
    assert (window.batches, window.jobs_per_batch) == ((), 3)
    assert math.isnan(window.sources["scan"].offered_per_second)
    assert window.sources["scan"].observed_per_second == pytest.approx(50 / 30)


def test_files_of_a_first_batch_are_weighed_by_what_its_tasks_have_read():
    """Half of the tasks have read 50 records of 10 files, so a file has 10; one comes every 2 s."""
    words = collector()
    written = {f"/data/in/{n}": ListedFile(100.0 + 2 * n) for n in range(16)}
    words.look([FILES], {0: FilesSeen(130.0, taken(0, *range(60, 80, 2)), written)})
    words.running = ObservedRun(running_batch(), CHAIN)
    rate = words.window(110.0, 130.0).sources["scan"]
    assert rate.offered_per_second == pytest.approx(5.0, rel=0.01)
    assert rate.backlog_records == pytest.approx((10 + 16) * 10 - 2 * 5 * 5, rel=0.01)


def test_a_single_run_and_the_jobs_of_a_batch_are_told():
    words = QueryCollector("id", "words", "run", None, frozenset(), single_run=True)
    words.add(replace(chain_batch(0, 0.0, 500, 500), jobs=3), CHAIN)
    window = words.window(0.0, 10.0)
    assert (window.single_run, window.jobs_per_batch) == (True, 3)


def test_a_query_that_has_never_had_anything_to_do_is_idle():
    words = collector()
    words.look([FILES], {0: FilesSeen(100.0, (), {})})
    words.look([FILES], {0: FilesSeen(160.0, (), {})})
    words.is_working = False
    assert words.window(150.0, 160.0) is None
    assert words.idle_seconds == 60


def test_a_query_at_rest_has_no_backlog_that_nobody_saw():
    """Input ended after the last batch; Spark's next report comes 10 s later."""
    words = collector(period=2.0)
    for number in range(5):
        words.add(chain_batch(number, 2.0 * number, 800, 800 * (number + 1), seconds=0.5), CHAIN)
    words.is_working = False
    assert words.window(8.0, 18.0).sources["scan"].backlog_records == 0
    words.is_working = True
    assert words.window(8.0, 18.0).sources["scan"].backlog_records == 400 * 10 - 2 * 2 * 400
