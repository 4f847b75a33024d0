"""Growth that could not help is rejected, with the reason; growth against a backlog never is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.dataflow.metrics import BatchExecution
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, ExecutorState, SourceRate
from penstock.decide.manager.critical_path import UselessGrowth
from penstock.decide.manager.guardrails import Situation
from penstock.decide.manager.history import ManagerState
from penstock.decide.manager.manager import Accepted, ManagerSettings, Rejected, ScalingManager
from penstock.diagnose.live_batch import find_critical_window
from tests.decide.situations import scale, window
from tests.diagnose.live_batches import driver_bound, hot_task, slow_executor, word_count

GUARD = UselessGrowth()


def seen(make, *, records=(1000.0, 1000.0), offered=100.0, backlog=0.0, end=100.0, held=2, cores=2):
    """A window whose query's last two batches were made so; its trigger is 10 s."""
    critical = tuple(
        find_critical_window(make(batch_id=n, records=read)) for n, read in enumerate(records, 6)
    )
    batches = tuple(
        BatchExecution(one.batch_id, end - 5, 3.0, held * cores, one.input_records, ()) for one in critical
    )
    base = window(end, held)
    query = replace(
        base.queries[0],
        batches=batches,
        critical=critical,
        sources={"read": SourceRate(offered, offered, backlog)},
    )
    executors = tuple(ExecutorState(str(number), "host", cores) for number in range(held))
    return replace(base, queries=(query,), executors=executors)


def opinion(view: ApplicationWindow, wanted=4, behind=False):
    return GUARD.apply(scale(wanted), Situation(view.end, view, ManagerState(), behind))


def changed(view, **changes):
    return replace(view, queries=(replace(view.queries[0], **changes),))


def test_a_driver_bound_query_does_not_grow():
    rejected = opinion(seen(driver_bound))
    assert isinstance(rejected, Rejected)
    assert rejected.guardrail == "critical-path"
    assert "bound by its driver" in rejected.reason


def test_one_hot_task_is_no_reason_to_grow():
    rejected = opinion(seen(hot_task), behind=True)
    assert isinstance(rejected, Rejected)
    assert "one task of count (partition 3 on executor" in rejected.reason
    assert "10.0 times the median" in rejected.reason


def test_a_slow_executor_is_no_reason_to_add_others():
    rejected = opinion(seen(slow_executor))
    assert isinstance(rejected, Rejected)
    assert "waits for executor 1, whose tasks of count take 4.0 times" in rejected.reason


def test_shrinking_is_none_of_its_business():
    assert opinion(seen(driver_bound), wanted=1).parallelism == {EXECUTORS: 1}


@pytest.mark.parametrize("backlog", [0.0, 500.0, 100_000.0])
@pytest.mark.parametrize("behind", [False, True])
def test_a_word_count_with_a_backlog_may_grow(backlog, behind):
    view = seen(lambda **made: word_count(executors=("0", "1"), **made), backlog=backlog)
    assert opinion(view, behind=behind).parallelism == {EXECUTORS: 4}


def test_batches_that_will_hold_more_records_may_have_another_critical_path():
    # 100 records a second for 10 s are what the batches held; 200 are twice as many
    assert isinstance(opinion(seen(driver_bound, offered=100.0)), Rejected)
    assert opinion(seen(driver_bound, offered=200.0)).parallelism == {EXECUTORS: 4}
    assert opinion(seen(driver_bound, backlog=500.0)).parallelism == {EXECUTORS: 4}
    assert opinion(seen(driver_bound, offered=float("nan"))).parallelism == {EXECUTORS: 4}


def test_a_source_that_limits_its_batches_goes_on_as_before():
    assert isinstance(opinion(seen(driver_bound, backlog=50_000.0)), Rejected)
    uneven = seen(driver_bound, records=(700.0, 1000.0), backlog=50_000.0)
    assert opinion(uneven).parallelism == {EXECUTORS: 4}


def test_every_doubt_lets_growth_pass():
    view = seen(driver_bound)
    query = view.queries[0]
    other = find_critical_window(word_count(batch_id=7, executors=("0", "1"), records=1000.0))
    assert isinstance(opinion(view), Rejected)
    for doubtful in (
        changed(view, critical=()),
        changed(view, critical=query.critical[-1:]),
        changed(view, critical=(query.critical[0], other)),
        changed(view, batches=()),
        changed(view, batches=(*query.batches, replace(query.batches[-1], batch_id=8))),
        changed(view, critical=tuple(replace(one, slots=6) for one in query.critical)),
        replace(view, queries=(query, replace(query, name="other", critical=()))),
    ):
        assert opinion(doubtful).parallelism == {EXECUTORS: 4}


@pytest.mark.parametrize(("setting", "kind"), [("veto", Rejected), ("show", Accepted)])
def test_the_manager_asks_it_unless_it_is_turned_off(setting, kind):
    settings = ManagerSettings(warm_up_intervals=0, activation_intervals=1, critical_path=setting)
    manager = ScalingManager(settings)
    verdict = None
    for end in (100.0, 110.0):
        verdict = manager.judge(end, seen(driver_bound, end=end), scale(4, utilisation=1.2))
    assert isinstance(verdict, kind)
