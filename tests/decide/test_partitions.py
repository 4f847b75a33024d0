"""Which partitions are short, what more of them would bring, and how a backlog is cut into batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.costs.foresight import Outlook
from penstock.dataflow.costs.model import ListingCost, QueryCosts, StageCost, batch_seconds
from penstock.dataflow.costs.slots import CostsBySlots
from penstock.dataflow.costs.tasks import TaskGrowth
from penstock.decide.ds2.slots import SharedSlots
from penstock.decide.goals import Goals
from penstock.decide.partitions import (
    NEARLY,
    WORTH_A_CHANGE,
    Lever,
    advise_on_partitions,
    find_lever,
    limit_first_batch,
)
from penstock.decide.policy import Hold, Scale
from tests.dataflow.synthetic_batches import TrueQuery, TrueStage
from tests.decide.slot_windows import PERIOD, chain, query_window, window

READ, COUNT, STATE = "MicroBatchScan + Filter", "HashAggregate", "StateStoreRestore + StateStoreSave"
ENOUGH = 0.8, 1024, 1


def stage(name: str, tasks: int, per_record: float = 0.001, per_task: float = 0.1) -> StageCost:
    return StageCost(name, per_task, per_record, tasks, np.full(tasks, 1 / tasks), 1.0)


def outlook(*stages: StageCost, rate: float = 1000.0, per_batch: float = 0.5, **changes: object) -> Outlook:
    made = Outlook(
        query="clicks",
        costs=CostsBySlots({4: QueryCosts(per_batch, stages, 4)}),
        rates={one.operator: rate for one in stages},
        offered_per_second=rate,
        backlog_records=0.0,
        period_seconds=10.0,
        slots=4,
        held=4,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operator", "lever"),
    [
        (READ, Lever.SOURCE),
        ("MicroBatchScan + MapInArrow flat + StateStoreSave", Lever.SOURCE),
        ("Scan json + WholeStageCodegen (1)", Lever.FILES),
        ("FileScan parquet", Lever.FILES),
        ("Scan ExistingRDD + Filter", Lever.SOURCE),
        (COUNT, Lever.SHUFFLE),
        (STATE, Lever.STATE),
        ("StreamingSymmetricHashJoin #2", Lever.STATE),
        ("FlatMapGroupsWithState", Lever.STATE),
        ("Filter + StreamingDeduplicate", Lever.STATE),
    ],
)
def test_the_plan_nodes_tell_what_tasks_follow(operator: str, lever: Lever) -> None:
    assert find_lever(operator) is lever


def test_a_source_with_too_few_partitions_is_told_with_the_effect() -> None:
    # 10,000 records of 2 ms a batch are 20 slot-seconds: two tasks take 0.5 + 0.1 + 10 s on any slots.
    # With 20 % headroom, 12,500 records on 3 slots take 0.6 + 8.33 s: three do, 0.6 + 6.67 s expected.
    found = advise_on_partitions(outlook(stage(READ, 2, per_record=0.002)), *ENOUGH)
    assert found is not None
    assert (found.slots, found.seconds) == (3, pytest.approx(10.6))
    assert found.expected_seconds == pytest.approx(0.6 + 20 / 3)
    (change,) = found.changes
    assert (change.lever, change.operators, change.tasks, change.wanted) == (Lever.SOURCE, (READ,), 2, 3)
    assert found.describe() == (
        "clicks: MicroBatchScan + Filter has 2 tasks: on the 3 slots that its load needs batches grow for "
        "ever, the next takes 10.6 s of 10.0 s; 7.3 s are expected with minPartitions=3 for a "
        "Kafka source, which cuts its partitions into pieces"
    )


def test_tasks_enough_are_not_mentioned() -> None:
    assert advise_on_partitions(outlook(stage(READ, 8), stage(STATE, 8)), *ENOUGH) is None
    # four slots would do, and there are as many tasks
    assert advise_on_partitions(outlook(stage(READ, 4, per_record=0.002)), *ENOUGH) is None


def test_only_what_brings_something_is_changed() -> None:
    cheap, dear = stage(READ, 1, per_record=1e-5), stage(STATE, 2, per_record=0.002)
    found = advise_on_partitions(outlook(cheap, dear), *ENOUGH)
    assert found is not None and [change.lever for change in found.changes] == [Lever.STATE]
    assert "autopilot.state.repartition" in found.describe()


def test_stages_of_one_setting_are_told_together() -> None:
    found = advise_on_partitions(
        outlook(stage(READ, 64), stage(COUNT, 2), stage("Sort", 3), rate=3000.0), *ENOUGH
    )
    assert found is not None
    (change,) = found.changes
    assert (change.operators, change.tasks) == ((COUNT, "Sort"), 2)
    assert f"spark.sql.shuffle.partitions={found.slots}" in found.describe()
    assert f"{COUNT}, Sort have 2 tasks" in found.describe()


def test_a_plan_that_gathers_all_rows_gets_no_partitions() -> None:
    gather = stage("HashAggregate #2", 1, per_record=0.002)
    found = advise_on_partitions(outlook(stage(READ, 64), stage(COUNT, 64), gather), *ENOUGH)
    assert found is None


def test_an_operator_that_cannot_be_scaled_gets_no_partitions() -> None:
    made = outlook(stage(COUNT, 1, per_record=0.002), fixed=frozenset({COUNT}))
    assert advise_on_partitions(made, *ENOUGH) is None


def test_a_task_that_may_hold_one_key_keeps_it() -> None:
    shares = np.array([0.91, 0.03, 0.03, 0.03])
    hot = replace(stage(COUNT, 4, per_record=0.002), shares=shares)
    assert advise_on_partitions(outlook(hot), *ENOUGH) is None


def test_where_no_size_is_enough_slots_end_where_more_bring_little() -> None:
    # 9.5 s of each batch pass on the driver
    found = advise_on_partitions(outlook(stage(COUNT, 1, per_record=0.002), per_batch=9.5), *ENOUGH)
    assert found is not None and found.slots < 100
    assert found.expected_seconds > 9.5


@st.composite
def outlooks(draw: st.DrawFn) -> Outlook:
    names = draw(st.lists(st.sampled_from([READ, COUNT, STATE, "Scan json"]), min_size=1, unique=True))
    stages = [
        stage(name, draw(st.integers(1, 40)), draw(st.floats(1e-6, 0.01)), draw(st.floats(0, 1)))
        for name in names
    ]
    return outlook(
        *stages,
        rate=draw(st.floats(1, 5000)),
        per_batch=draw(st.floats(0, 12)),
        backlog_records=draw(st.floats(0, 1e8)),
    )


@given(outlooks(), st.sampled_from([1, 2, 5]))
def test_advice_is_worth_it_and_names_only_what_is_short(made: Outlook, per_executor: int) -> None:
    found = advise_on_partitions(made, 0.8, 200, per_executor)
    if found is None:
        return
    assert found.slots % per_executor == 0 and per_executor <= found.slots <= 200
    limit = found.seconds * (1 - WORTH_A_CHANGE) / (1 - NEARLY) ** len(Lever)
    assert found.changes and (found.expected_seconds < limit or found.grows > found.still_grows)
    stages = {one.operator: one for one in made.costs.newest.stages}
    for change in found.changes:
        assert all(find_lever(name) is change.lever for name in change.operators)
        assert change.tasks == min(stages[name].tasks for name in change.operators) < change.wanted


def test_a_backlog_is_cut_into_batches_of_a_period() -> None:
    # 4 slots: 0.5 + 0.1 + 0.001 n / 4 s for n records; 10 s hold 37,600, of which 10,000 come meanwhile
    made = outlook(stage(READ, 4), backlog_records=1e6)
    found = limit_first_batch(made, 4)
    assert found is not None
    assert (found.records, found.batches, found.files) == (37_000, math.ceil(1e6 / 27_000), None)
    assert found.seconds == pytest.approx(0.6 + 1_010_000 / 4000)
    assert found.describe() == (
        "clicks: one batch over the backlog of 1,000,000 records takes 253 s, and nothing comes out before "
        "its end; maxOffsetsPerTrigger=37000 for a Kafka source, from a start until it has caught up, makes "
        "38 batches of 10.0 s of it"
    )


def test_where_files_are_read_the_limit_is_in_files() -> None:
    files = replace(stage("Scan json", 4), growth=TaskGrowth(1000.0))
    found = limit_first_batch(outlook(files, backlog_records=1e6), 4)
    assert found is not None and found.files == found.records // 1000
    assert f"maxFilesPerTrigger={found.files}," in found.describe()
    listed = QueryCosts(0.5, (stage("Scan json", 4),), 4, listing=ListingCost(("Scan json",), 0.01, 0.001))
    found = limit_first_batch(
        outlook(*listed.stages, costs=CostsBySlots({4: listed}), backlog_records=1e6), 4
    )
    assert found is not None and found.files == int(found.records * 0.01)


@pytest.mark.parametrize(
    "changes",
    [{"backlog_records": 0.0}, {"backlog_records": 50_000.0}, {"offered_per_second": 0.0}],
)
def test_a_small_backlog_or_no_rate_needs_no_limit(changes: dict[str, float]) -> None:
    assert limit_first_batch(outlook(stage(READ, 4), **{"backlog_records": 1e6, **changes}), 4) is None


def test_slots_that_do_not_carry_the_rate_get_no_limit() -> None:
    assert limit_first_batch(outlook(stage(READ, 4, per_record=0.01), backlog_records=1e6), 4) is None


@given(outlooks(), st.integers(1, 64))
def test_batches_within_the_limit_fit_and_read_the_backlog(made: Outlook, slots: int) -> None:
    found = limit_first_batch(made, slots)
    if found is None:
        return
    usual, left, batches = made.offered_per_second * made.period_seconds, made.backlog_records, 0
    rates = {name: rate * found.records / usual for name, rate in made.rates.items()}
    assert batch_seconds(made.costs.costs_for(slots), rates, made.period_seconds, slots) <= 10.0 * (1 + 1e-6)
    while left > 0 and batches <= found.batches:
        left, batches = left + usual - found.records, batches + 1
    assert batches == found.batches or math.isclose(left, 0, abs_tol=made.backlog_records * 1e-9)


@pytest.mark.parametrize(("tasks", "rate"), [(2, 200.0), (4, 400.0), (7, 700.0)])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_expected_of_more_partitions_comes_true(tasks: int, rate: float, seed: int) -> None:
    """Costs fitted on noisy batches, against the same query with the partitions that were advised."""
    read, count = TrueStage(READ, 24, 0.1, 0.002), TrueStage(COUNT, tasks, 0.2, 0.006)
    query = TrueQuery((read, count), noise=0.05, random=np.random.default_rng(seed))
    seen = query.runs([rate * PERIOD * times for times in (0.8, 1.0, 1.2, 1.1, 0.9, 1.0)], 12)
    answer = SharedSlots(Goals()).propose(
        window(query_window(chain(query), seen, {READ: rate}), executors=12, cores=1)
    )
    assert isinstance(answer, Hold | Scale)
    (made,) = answer.outlooks
    found = advise_on_partitions(made, Goals().utilisation, 100)
    assert found is not None and [change.lever for change in found.changes] == [Lever.SHUFFLE]
    more = replace(query, stages=(read, replace(count, tasks=found.changes[0].wanted)))
    assert found.seconds == pytest.approx(query.seconds(rate * PERIOD, found.slots), rel=0.15)
    assert found.expected_seconds == pytest.approx(more.seconds(rate * PERIOD, found.slots), rel=0.15)


def test_batches_that_grow_for_ever_are_told_as_such() -> None:
    # one task carries 1,000 records/s of 1 ms each; 1,500 come
    found = advise_on_partitions(outlook(stage(COUNT, 1), stage(READ, 64, 1e-5), rate=1500.0), *ENOUGH)
    assert found is not None and found.grows and not found.still_grows
    assert "batches grow for ever, the next takes 1" in found.describe()
