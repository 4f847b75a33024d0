"""A batch that has not ended: growth that its stages need in any case, or when it may end."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import BatchExecution, RunningBatch, RunningStage, StageExecution
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, SlotQuery, SourceRate
from penstock.decide.ds2.slots import SharedSlots
from penstock.decide.goals import Goals
from penstock.decide.policy import Hold, Scale
from tests.decide.slot_windows import window

GRAPH = LogicalGraph(["files", "totals"], [("files", "totals")])


def source_stage(seconds_a_record: float, done: int, total: int) -> RunningStage:
    """So many tasks of 100 records are done, one of which started Python and took five times as long."""
    seconds = np.full(done, 100 * seconds_a_record)
    seconds[:1] *= 5
    records = np.full(done, 100.0)
    columns = StageExecution("files", records, records, seconds, np.zeros(done), 60.0) if done else None
    return RunningStage("files", total, done, 2, 100.0 * done, columns, np.array([0.2, 0.3]))


def first_batch(
    stage: RunningStage, rate: float, seconds: float = 60.0, backlog: float = 0.0, new_slots: int = 2
) -> SlotQuery:
    return SlotQuery(
        "q",
        "lookups",
        GRAPH,
        {"files": SourceRate(rate, 0.0, backlog)},
        (),
        5.0,
        running=RunningBatch(0, -50.0, seconds, 2, (stage,), new_slots),
    )


def propose(query: SlotQuery, executors: int = 1):
    return SharedSlots(Goals()).propose(window(query, executors=executors, cores=2))


def test_a_source_that_needs_more_slots_grows_before_the_batch_has_ended():
    # 330 records/s of 10 ms keep 3.3 slots busy: at 80 % 4.1, so five
    answer = propose(first_batch(source_stage(0.01, 40, 400), 330.0))
    assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 3}
    assert "batch 0 has run for 60 s: 40 of 400 tasks of files are done" in answer.reason
    assert "3.3 slots busy" in answer.reason
    # what is held has been at this batch for twelve periods: no band may call it used well enough
    assert answer.expected.figures["held_utilisation_ratio"] == 12.0


def test_a_batch_that_only_takes_long_is_awaited_until_a_time():
    answer = propose(first_batch(source_stage(0.01, 40, 400), 60.0))
    assert isinstance(answer, NotReady)
    # 360 tasks of 1 s, 0.5 s of them done, on two slots
    assert "40 of 400 tasks of files are done, about 180 s of its present stage are left" in answer.reason
    assert answer.until == 10.0 + (360 - 0.5) / 2


def test_a_short_batch_proves_nothing():
    assert isinstance(propose(first_batch(source_stage(0.01, 40, 400), 330.0, seconds=14.0)), NotReady)


def test_few_tasks_prove_nothing():
    assert isinstance(propose(first_batch(source_stage(0.01, 2, 400), 330.0)), NotReady)
    assert isinstance(propose(first_batch(source_stage(0.01, 0, 400), 330.0)), NotReady)


def test_the_first_task_of_each_slot_proves_nothing_in_a_first_batch():
    # each of eight slots has done one task, which started Python and compiled code: 26 slots were asked for
    first = source_stage(0.05, 8, 16)
    assert isinstance(propose(first_batch(first, 330.0, new_slots=8), executors=4), NotReady)
    more = source_stage(0.05, 9, 16)
    assert isinstance(propose(first_batch(more, 330.0, new_slots=8), executors=4), Scale)


def keyed_batch(source_records: float, done: int, rate: float) -> SlotQuery:
    """All of its source is done, at 0.1 ms a record; some of eight keyed tasks are, at 10 ms a record."""
    read = np.full(4, source_records / 4)
    scanned = StageExecution("files", read, read / 2, read * 1e-4, np.zeros(4), 5.0)
    source = RunningStage("files", 4, 4, 0, source_records, scanned, is_over=True)
    keyed = np.full(done, source_records / 16)
    columns = StageExecution("totals", keyed, keyed, keyed * 0.01, np.zeros(done), 50.0)
    totals = RunningStage("totals", 8, done, 1, float(keyed.sum()), columns, np.array([9.0]))
    query = first_batch(source, rate, new_slots=0)
    assert query.running is not None
    return replace(query, running=replace(query.running, stages=(source, totals)))


def test_the_tasks_after_a_shuffle_tell_as_well_once_all_before_them_are_done():
    # 660 records/s: 0.07 slots of scanning, and 330 keyed ones of 10 ms; together 3.4 slots, at 80 % 4.2
    answer = propose(keyed_batch(16_000.0, 5, 660.0))
    assert isinstance(answer, Scale) and answer.expected.figures["slots_needed"] == 5
    assert "3.4 slots busy" in answer.reason and "5 of 8 tasks of totals are done" in answer.reason


def test_tasks_after_a_shuffle_prove_nothing_while_few_are_done_or_the_batch_has_less_than_a_period():
    assert isinstance(propose(keyed_batch(1600.0, 1, 310.0)), NotReady), "100 records, one task"
    # what such tasks cost whatever they get would count for every record
    assert isinstance(propose(keyed_batch(3200.0, 5, 660.0)), NotReady)


def test_a_backlog_makes_no_records_of_what_tasks_after_a_shuffle_cost_whatever_they_get():
    # 1,050 records in tasks of 0.3 s: with 600,000 waiting, 80 slots were asked for where seven were enough
    waiting = {"files": SourceRate(100.0, 100.0, 600_000.0)}
    small = replace(keyed_batch(1050.0, 5, 100.0), sources=waiting)
    running = small.running
    assert running is not None
    costly = replace(running.stages[1].done, useful_seconds=np.full(5, 0.3))
    stages = running.stages[0], replace(running.stages[1], done=costly)
    assert isinstance(propose(replace(small, running=replace(running, stages=stages))), NotReady)


def test_one_hot_key_does_not_make_the_fixed_costs_of_the_others_count_for_its_records():
    # seven tasks of 1 s with 30 records each, one of 20 s with 7,790: 27 s for 8,000 records, not 33 ms each
    query = keyed_batch(16_000.0, 8, 660.0)
    running = query.running
    assert running is not None
    records, seconds = np.array([30.0] * 7 + [7790.0]), np.array([1.0] * 7 + [20.0])
    uneven = replace(running.stages[1].done, records_in=records, useful_seconds=seconds)
    stages = running.stages[0], replace(running.stages[1], done=uneven)
    # 330 keyed records a second of 3.4 ms keep 1.1 slots busy, and scanning 0.07
    assert isinstance(propose(replace(query, running=replace(running, stages=stages))), NotReady)


@pytest.mark.parametrize("slots", [(4, 2, 2), (2, 4, 4)])
def test_a_batch_that_loses_executors_still_tells(slots):
    policy, stage = SharedSlots(Goals()), source_stage(0.02, 40, 400)
    query = first_batch(stage, 330.0)
    answers = [
        policy.propose(replace(window(query, executors=count // 2, cores=2), end=10.0 * number))
        for number, count in enumerate(slots)
    ]
    assert isinstance(answers[-1], Scale if slots[0] > slots[1] else NotReady)


def test_slots_that_have_worked_before_prove_with_their_first_task_though_no_costs_are_known():
    # the first batch was left out since its executors were new to it; one task of the second is done
    stage = source_stage(0.01, 1, 3)
    assert stage.done is not None
    many = replace(stage.done, records_in=np.full(1, 3000.0), useful_seconds=np.full(1, 30.0))
    query = first_batch(replace(stage, done=many, records_done=3000.0), 330.0, new_slots=0)
    answer = SharedSlots(Goals()).propose(window(query, executors=1, cores=1))
    # 10 ms a record keep 3.3 slots busy: at 80 % 4.1
    assert isinstance(answer, Scale) and answer.expected.figures["slots_needed"] == 5


def cheap_batches() -> tuple[BatchExecution, ...]:
    """Batches of which a record costs a millisecond."""
    return tuple(
        BatchExecution(
            number,
            5.0 * number,
            2.0,
            2,
            records,
            (
                StageExecution(
                    "files", *(np.full(40, one) for one in (records / 40, 1.0, records / 40_000, 0.0)), 1.0
                ),
                StageExecution("totals", *(np.full(1, one) for one in (4.0, 1.0, 0.01, 0.0)), 0.1),
            ),
        )
        for number, records in enumerate((1600.0, 1700.0, 1650.0, 1680.0))
    )


@pytest.mark.parametrize(
    ("rate", "seconds", "new_slots", "says_so_again"),
    [(3000.0, 6.0, 0, True), (3000.0, 4.0, 0, False), (3000.0, 6.0, 2, False), (900.0, 6.0, 0, False)],
    ids=["overdue", "in time", "on new executors", "though what is held is enough"],
)
def test_a_need_is_said_again_while_the_next_batch_outlasts_its_period(
    rate, seconds, new_slots, says_so_again
):
    # the tasks of its source have not begun to end: without the costs of before nothing is known of it
    policy, stage = SharedSlots(Goals()), source_stage(0.001, 0, 4)
    known = replace(first_batch(stage, rate), batches=cheap_batches(), running=None)
    first = policy.propose(window(known, executors=1, cores=2))
    assert isinstance(first, Scale) == (rate > 2000)
    answer = policy.propose(
        window(first_batch(stage, rate, seconds, new_slots=new_slots), executors=1, cores=2)
    )
    assert isinstance(answer, Scale if says_so_again else NotReady)
    if isinstance(first, Scale) and isinstance(answer, Scale):
        assert answer.parallelism == first.parallelism
        assert f"batch 0 has run for {seconds:.0f} s" in answer.reason


@pytest.mark.parametrize(
    ("executors", "seconds", "says_so_again"), [(1, 20.0, True), (1, 4.0, False), (2, 20.0, False)]
)
def test_what_tasks_told_stands_while_the_next_batch_outlasts_its_period(executors, seconds, says_so_again):
    """A first batch told a need and was left out; of the second no task had ended after two minutes."""
    policy = SharedSlots(Goals())
    told = policy.propose(window(first_batch(source_stage(0.01, 40, 400), 330.0), executors=1, cores=2))
    left_out = replace(
        first_batch(source_stage(0.01, 0, 4), 330.0),
        batches=(ended_batch(60.0, settled=False),),
        running=None,
    )
    assert isinstance(policy.propose(window(left_out, executors=1, cores=2)), NotReady)
    next_one = first_batch(source_stage(0.01, 0, 4), 330.0, seconds, new_slots=0)
    answer = policy.propose(window(next_one, executors=executors, cores=2))
    assert isinstance(told, Scale) and isinstance(answer, Scale if says_so_again else NotReady)
    if isinstance(answer, Scale):
        assert answer.parallelism == told.parallelism and "has run for 20 s: 0 of 4 tasks" in answer.reason


@pytest.mark.parametrize(
    ("end", "began", "grows"),
    [(60.0, -50.0, False), (110.0, -50.0, True), (60.0, 42.0, True)],
    ids=["soon after", "a minute later", "by a batch begun since"],
)
def test_a_batch_in_which_executors_came_asks_for_more_only_after_a_minute(end, began, grows):
    """Its tasks were cold: by them 1 executor became 3, and 30 s later, still in the same batch, 6."""
    policy, stage = SharedSlots(Goals()), source_stage(0.02, 40, 400)
    told = window(first_batch(stage, 330.0), executors=1, cores=2)
    assert isinstance(policy.propose(replace(told, end=30.0)), Scale)
    assert stage.done is not None
    stage = replace(stage, done=replace(stage.done, wall_seconds=end - began))
    query = first_batch(stage, 330.0, seconds=end - began, new_slots=2)
    assert query.running is not None
    query = replace(query, running=replace(query.running, start=began, slots=4))
    for moment in (40.0, end):
        answer = policy.propose(replace(window(query, executors=2, cores=2), end=moment))
    assert isinstance(answer, Scale if grows else NotReady)


def test_a_batch_that_ends_in_time_takes_back_what_tasks_told():
    policy = SharedSlots(Goals())
    policy.propose(window(first_batch(source_stage(0.01, 40, 400), 330.0), executors=1, cores=2))
    quick = replace(first_batch(source_stage(0.01, 0, 4), 330.0), batches=(ended_batch(4.0),), running=None)
    policy.propose(window(quick, executors=1, cores=2))
    answer = policy.propose(
        window(first_batch(source_stage(0.01, 0, 4), 330.0, 20.0, new_slots=0), executors=1, cores=2)
    )
    assert isinstance(answer, NotReady)


def test_records_that_have_become_dearer_show_in_the_tasks_of_one_long_batch():
    # what cost a millisecond costs ten now, as on a host that is throttled: the batch outlasts twelve periods
    policy = SharedSlots(Goals())
    known = replace(first_batch(source_stage(0.01, 0, 4), 330.0), batches=cheap_batches(), running=None)
    assert isinstance(policy.propose(window(known, executors=1, cores=2)), Hold)
    answer = policy.propose(window(first_batch(source_stage(0.01, 40, 400), 330.0), executors=1, cores=2))
    assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 3}
    assert "3.3 slots busy" in answer.reason


def ended_batch(seconds: float, settled: bool = True) -> BatchExecution:
    """One of two tasks, with 3,000 records of 10 ms each: too few tasks to fit costs from."""
    columns = np.full(2, 3000.0), np.full(2, 3000.0), np.full(2, 30.0), np.zeros(2)
    empty = tuple(np.zeros(1) for _ in range(4))
    stages = StageExecution("files", *columns, 30.0), StageExecution("totals", *empty, 0.1)
    return BatchExecution(1, -60.0, seconds, 2, 6000.0, stages, settled)


def test_a_long_batch_that_has_ended_with_few_tasks_tells_the_same():
    # 330 records/s of 10 ms keep 3.3 slots busy, with the next batch not yet seen and with it just begun
    next_one = replace(first_batch(source_stage(0.01, 0, 4), 330.0, seconds=2.0).running, batch_id=2)
    for running in (None, next_one):
        ended = replace(
            first_batch(source_stage(0.01, 0, 4), 330.0), batches=(ended_batch(31.0),), running=running
        )
        answer = propose(ended)
        assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 3}
        assert "3.3 slots busy; batch 1 took 31 s" in answer.reason


def test_an_ended_batch_asks_for_nothing_where_it_was_short_or_its_executors_new():
    for batch in (ended_batch(14.0), ended_batch(31.0, settled=False)):
        query = replace(first_batch(source_stage(0.01, 0, 4), 330.0), batches=(batch,), running=None)
        assert isinstance(propose(query), NotReady)


def test_two_tasks_with_many_records_are_enough():
    stage = source_stage(0.01, 2, 3)
    assert stage.done is not None
    many = replace(stage.done, records_in=np.full(2, 2000.0), useful_seconds=np.array([24.0, 20.0]))
    query = first_batch(replace(stage, done=many, records_done=4000.0), 330.0, new_slots=1)
    answer = SharedSlots(Goals()).propose(window(query, executors=1, cores=1))
    # the cheaper of the two tells most: 10.5 ms a record, so 3.5 slots at 80 % are 4.3
    assert isinstance(answer, Scale) and answer.expected.figures["slots_needed"] == 5


def test_what_waits_counts_with_the_time_to_catch_up():
    # 18,000 records more in 600 s are 30 a second: 3.6 slots at 80 % are 4.5
    answer = propose(first_batch(source_stage(0.01, 40, 400), 330.0, backlog=18_000.0))
    assert isinstance(answer, Scale)
    assert answer.expected.figures["slots_needed"] == 5


def test_nothing_is_given_back_for_part_of_a_batch():
    answer = propose(first_batch(source_stage(0.0001, 40, 400), 60.0), executors=8)
    assert isinstance(answer, NotReady)


def test_a_batch_whose_rates_are_unknown_says_how_far_it_has_come():
    # as of a join in its first batch: which of two sources feeds which stage is not known yet
    query = replace(first_batch(source_stage(0.01, 40, 400), math.nan), sources={})
    answer = propose(query)
    assert isinstance(answer, NotReady)
    assert "40 of 400 tasks of files are done" in answer.reason and answer.until is not None


def test_an_unknown_rate_is_said():
    query = replace(first_batch(source_stage(0.01, 40, 400), 330.0), sources={})
    answer = propose(query)
    assert isinstance(answer, NotReady) and answer.reason
