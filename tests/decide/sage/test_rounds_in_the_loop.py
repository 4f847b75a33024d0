"""Sage inside the loop with what executors report: memory and cores, within limits, as operators let it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ExecutorUse, SizingFacts
from penstock.decide.policy import Hold, Resize, Scale
from penstock.decide.sage.metrics import GcClock, TouchedHeap, sample_of, surely_beside
from penstock.decide.sage.overrides import parse_said
from penstock.decide.sage.policy import SagePolicy
from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadInput
from tests.decide.sized_application import CALM, CONF, GIB, MIB, WIDE, Application
from tests.fakes import FixedPolicy, a_query, a_window


def test_a_full_heap_grows_with_the_values_before_and_after():
    answer = Application().run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "6144m"}
    assert answer.before == {"spark.executor.memory": "4096m"}
    assert answer.reason.startswith("P1 (heap scale-up)") and "4096m → 6144m" in answer.reason


def test_python_workers_beside_the_heap_make_the_overhead_grow():
    answer = Application().run(resident_bytes=4.8 * GIB)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memoryOverhead": "1280m"}


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        ({"out_of_memory_count": 1}, "spark.executor.memory"),
        ({"memory_kill_count": 1}, "spark.executor.memoryOverhead"),
        ({"driver_heap_used_bytes": 1.9 * GIB}, "spark.driver.memory"),
    ],
)
def test_losses_and_the_driver(facts, key):
    answer = Application().run(facts=facts)
    assert isinstance(answer, Resize) and set(answer.settings) == {key}


@pytest.mark.parametrize("loss", ["out_of_memory_count", "memory_kill_count"])
def test_an_executor_that_is_missing_for_a_moment_is_no_other_size(loss: str):
    """A dead executor and its replacement must not make the samples before them count for nothing."""
    application = Application()
    assert isinstance(application.run(3), NotReady)
    assert isinstance(application.run(1, facts={loss: 1}, executors=1), Resize)
    assert isinstance(application.run(1), Resize), "it is back, and what was seen still counts"
    other = Application()
    other.run(3)
    assert isinstance(other.run(1, executors=1), NotReady), "one that was given back makes another size"


def test_an_unused_heap_is_given_back_in_one_step_to_what_is_committed():
    answer = Application().run(
        30, heap_committed_bytes=1.5 * GIB, heap_used_bytes=GIB, resident_bytes=2 * GIB
    )
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "1536m"}
    assert answer.reason.startswith("P6")


def test_executors_that_are_kept_in_any_case_do_not_keep_the_heap_large():
    """P5 would ask for fewer than the least in every round, in vain, and P6 never be asked."""
    unused = {"heap_committed_bytes": 1.5 * GIB, "heap_used_bytes": GIB, "resident_bytes": 2 * GIB}
    fewer = Application(needed=1).run(30, **unused)
    assert isinstance(fewer, Scale) and fewer.reason.startswith("P5")
    kept = Application(needed=1, least=2).run(30, **unused)
    assert isinstance(kept, Resize) and kept.reason.startswith("P6")


def test_collections_count_only_where_the_jvm_has_taken_its_heap():
    """A young JVM with a small part of its heap collects often; a larger limit would not change that."""
    often = {"gc_seconds": 2.0, "gc_count": 40.0}
    answer = Application().run(
        8, heap_committed_bytes=GIB, heap_used_bytes=0.5 * GIB, resident_bytes=1.6 * GIB, **often
    )
    assert isinstance(answer, Hold)
    answer = Application().run(8, **often)
    assert isinstance(answer, Resize) and "of the time went into GC" in answer.reason
    answer = Application().run(8, gc_count=40.0)
    assert isinstance(answer, Resize) and "240 collections a minute" in answer.reason


def test_a_window_of_a_day_looks_back_over_a_day():
    """What is committed once a day, by night, keeps the heap from being shrunk by day."""
    application = Application(settings=SageSettings(down_window_seconds=86_400.0))
    application.run(30)
    calm = {"heap_committed_bytes": GIB, "heap_used_bytes": 0.5 * GIB, "resident_bytes": 1.9 * GIB}
    assert isinstance(application.run(1010, **calm), Hold)


def test_nothing_of_the_heap_is_given_back_while_much_time_goes_into_gc():
    unused = {"heap_committed_bytes": GIB, "heap_used_bytes": 0.5 * GIB, "resident_bytes": 1.9 * GIB}
    assert isinstance(Application().run(30, **unused), Resize)
    assert isinstance(Application().run(30, gc_seconds=2.0, **unused), Hold)


def test_no_heap_is_given_back_below_what_spark_starts_with():
    answer = Application().run(
        30, heap_committed_bytes=120 * MIB, heap_used_bytes=60 * MIB, resident_bytes=600 * MIB
    )
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "450m"}


def test_what_was_too_small_is_not_gone_back_to_even_by_the_next_run():
    first = Application()
    assert isinstance(first.run(heap_used_bytes=3.9 * GIB), Resize)
    second = Application(conf={**CONF, "spark.executor.memory": "6g"})
    assert second.policy.recall(first.policy.learned()) == ()
    unused = {"heap_committed_bytes": 3 * GIB, "heap_used_bytes": 2 * GIB, "resident_bytes": 3.8 * GIB}
    assert isinstance(second.run(30, **unused), Hold)
    assert isinstance(Application(conf={**CONF, "spark.executor.memory": "6g"}).run(30, **unused), Resize)
    assert second.policy.recall({"known": {"too_small": 5}}) != ()


def test_a_heap_that_was_given_back_once_is_not_given_back_again():
    """What a JVM commits follows what it may have: it is less again under the smaller limit."""
    first = Application()
    unused = {"heap_committed_bytes": 2.5 * GIB, "heap_used_bytes": GIB, "resident_bytes": 3.25 * GIB}
    answer = first.run(30, **unused)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "2560m"}
    smaller = Application(conf={**CONF, "spark.executor.memory": "2560m"})
    assert smaller.policy.recall(first.policy.learned()) == ()
    still_less = {**unused, "heap_committed_bytes": 2 * GIB, "resident_bytes": 2.75 * GIB}
    assert isinstance(smaller.run(30, **still_less), Hold)
    grown = Application(conf={**CONF, "spark.executor.memory": "4g"})
    grown.policy.recall(first.policy.learned())
    assert isinstance(grown.run(30, **still_less), Resize), "it was set anew, by hand or by P1"


def test_what_the_first_minute_after_the_first_batch_costs_is_not_believed():
    application = Application()
    started = SagePolicy(FixedPolicy(Hold("right")), SageSettings(), limits=WIDE)
    application.policy, application.now = started, 0.0
    assert isinstance(application.run(7, gc_seconds=4.0), NotReady)
    assert isinstance(application.run(15), Hold)
    assert isinstance(application.run(7, gc_seconds=4.0), Resize)


def test_a_failure_for_want_of_heap_is_believed_at_once():
    application = Application()
    application.policy = SagePolicy(FixedPolicy(Hold("right")), SageSettings(), limits=WIDE)
    answer = application.run(4, facts={"out_of_memory_count": 1})
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "6144m"}


def test_what_was_touched_of_the_heap_stays_resident_when_it_is_cleared():
    """2 GiB were used once, of which 0.5 are left: of 2.3 resident 0.3 are beside the heap, not 1.8."""
    touched = TouchedHeap()

    def beside(**use: float) -> float:
        (executor, *_) = a_window().executors
        (found,) = touched.beside([dataclasses.replace(executor, use=ExecutorUse(**use))])
        return found / GIB

    full = {"heap_used_bytes": 2 * GIB, "heap_committed_bytes": 4 * GIB, "resident_bytes": 2.3 * GIB}
    assert beside(**full) == pytest.approx(0.3)
    assert beside(**{**full, "heap_used_bytes": 0.5 * GIB}) == pytest.approx(0.3)
    assert math.isnan(beside()), "what is not reported is not nothing"
    assert beside(**{**full, "heap_used_bytes": 0.5 * GIB}) == pytest.approx(0.3)
    given_back = {"heap_used_bytes": 0.5 * GIB, "heap_committed_bytes": GIB, "resident_bytes": 1.3 * GIB}
    assert beside(**given_back) == pytest.approx(0.3)
    taken_anew = {**given_back, "heap_committed_bytes": 4 * GIB}
    assert beside(**taken_anew) == pytest.approx(0.3), "one GiB at most is still resident"


def test_a_report_that_is_late_now_and_then_silences_no_rule():
    unused = {"heap_committed_bytes": 2.5 * GIB, "heap_used_bytes": GIB, "resident_bytes": 3.25 * GIB}
    application = Application()
    application.run(20, **unused)
    application.run(3, **dict.fromkeys(dataclasses.asdict(CALM), float("nan")))
    answer = application.run(1, **unused)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "2560m"}


def test_a_resident_size_that_is_not_known_leaves_the_overhead_alone():
    answer = Application().run(30, resident_bytes=float("nan"))
    assert isinstance(answer, Hold)


def test_executors_that_report_nothing_leave_memory_alone():
    application = Application()
    answer = application.run(30, **dict.fromkeys(dataclasses.asdict(CALM), float("nan")))
    assert isinstance(answer, Hold) and answer.reason == "no rule asks for a change"


def test_what_is_beside_the_heap_is_that_of_one_executor_not_of_two():
    """One with a small heap and much beside it, one with a large heap: 2.5 GiB are needed beside a heap."""
    small = dataclasses.replace(CALM, heap_committed_bytes=2 * GIB, resident_bytes=4.5 * GIB)
    large = dataclasses.replace(CALM, heap_committed_bytes=4.2 * GIB, resident_bytes=4.4 * GIB)
    states = tuple(
        dataclasses.replace(e, use=u) for e, u in zip(a_window().executors, (small, large), strict=True)
    )
    sample = sample_of(dataclasses.replace(a_window(), executors=states), GcClock(), TouchedHeap(), 2.0)
    assert sample["memory_used_bytes"] - sample["heap_committed_bytes"] == pytest.approx(2.5 * GIB)
    assert sample["beside_heap_bytes"] == pytest.approx(2.5 * GIB)


def test_only_what_is_beyond_the_committed_heap_is_surely_beside_it():
    use = dataclasses.replace(CALM, heap_committed_bytes=2 * GIB, heap_used_bytes=GIB)
    assert surely_beside(dataclasses.replace(use, resident_bytes=1.5 * GIB)) == 0.0
    assert surely_beside(dataclasses.replace(use, resident_bytes=2.5 * GIB)) == 0.5 * GIB
    assert math.isnan(surely_beside(dataclasses.replace(use, resident_bytes=math.nan)))


def test_a_majority_of_executors_must_have_reported():
    silent = a_window(executors=3)
    one, *others = silent.executors
    told = dataclasses.replace(silent, executors=(dataclasses.replace(one, use=CALM), *others))
    assert math.isnan(sample_of(told, GcClock(), TouchedHeap(), 2.0)["heap_used_bytes"])
    two = tuple(dataclasses.replace(e, use=CALM) for e in silent.executors[:2])
    told = dataclasses.replace(silent, executors=(*two, silent.executors[2]))
    assert sample_of(told, GcClock(), TouchedHeap(), 2.0)["heap_used_bytes"] == 2 * GIB


def test_memory_grows_also_while_no_batch_ends_and_nothing_shrinks_then():
    """DS2 waits for a batch; one that never ends for want of heap must not keep P1 waiting, too."""
    application = Application(needed=0)
    answer = application.run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize) and answer.reason.startswith("P1")
    calm = Application(conf={**CONF, "spark.executor.memory": "8g"}, needed=0)
    assert isinstance(calm.run(30), NotReady), "heap to spare is given back when batches end"


def test_a_pin_a_veto_and_a_force():
    application = Application()
    application.said = parse_said({"pin": ["heap"]}, "here")
    answer = application.run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Hold) and "P1 was held back: its parameter is pinned" in answer.reason
    application.said = parse_said({"veto": ["P1"]}, "here")
    answer = application.run(1, heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Hold) and "vetoed" in answer.reason
    application.said = parse_said({"force": {"rule": "p2", "id": "t-1"}, "by": "ops"}, "here")
    answer = application.run(1)
    assert isinstance(answer, Resize) and answer.reason.endswith("forced by ops")
    assert isinstance(application.run(1), Hold), "a force is obeyed once"
    application.said = parse_said({"force": {"rule": "P2", "id": "t-2"}}, "here")
    assert isinstance(application.run(1), Resize)


def test_a_forced_change_of_parallelism_names_who_forced_it():
    application = Application(needed=5)
    application.said = parse_said({"force": {"rule": "P4", "id": "t-1"}, "by": "ops"}, "here")
    answer = application.run(4)
    assert isinstance(answer, Scale) and "forced by ops" in answer.reason


def test_a_force_stands_until_its_rule_has_decided():
    """P7 knows too little before twenty samples, and would not shrink by a twentieth of its own accord."""
    application = Application()
    application.said = parse_said({"force": {"rule": "P7", "id": "t-1"}, "by": "ops"}, "here")
    answers = [application.run(1, resident_bytes=4.56 * GIB) for _ in range(30)]
    (answer,) = [one for one in answers if isinstance(one, Resize)]
    assert answer.reason.startswith("P7") and "forced by ops" in answer.reason


def test_a_force_waits_for_samples_as_a_manager_does_after_a_start():
    """What is proposed while it warms up is not heard, and a force is obeyed once."""
    application = Application()
    application.said = parse_said({"force": {"rule": "P2", "id": "t-1"}}, "here")
    answers = [application.run(1) for _ in range(5)]
    assert [isinstance(answer, Resize) for answer in answers] == [False, False, True, False, False]


def test_what_is_said_while_a_window_is_judged_counts_from_the_next_one_on():
    application = Application()
    application.run(3)
    application.later = [parse_said({"force": {"rule": rule, "id": rule}}, "here") for rule in ("P4", "P2")]
    assert isinstance(application.run(1), Hold)
    assert isinstance(application.run(1), Resize), "a force is not taken for obeyed before it was judged"


def test_a_clock_that_went_back_an_hour_costs_a_minute():
    application = Application()
    application.run(8)
    application.run(1, executors=1)
    application.now -= 3600.0
    answer = application.run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize) and answer.reason.startswith("P1")


def test_a_scale_down_that_is_pinned_does_not_keep_the_others_back():
    application = Application(conf={**CONF, "spark.executor.memory": "8g"})
    application.said = parse_said({"pin": ["heap"]}, "here")
    answer = application.run(30, resident_bytes=4.0 * GIB)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memoryOverhead": "384m"}


def test_a_pin_with_a_value_sets_it_in_one_restart_and_keeps_it():
    application = Application()
    application.said = parse_said({"pin": ["heap=2g", "cpu=2", "overhead"], "by": "ops"}, "here")
    answer = application.run(1)
    wanted = {"spark.executor.memory": "2048m", "spark.executor.cores": "4", "spark.task.cpus": "2"}
    assert isinstance(answer, Resize) and answer.settings == wanted
    assert answer.before["spark.executor.memory"] == "4096m"
    assert answer.reason.startswith("set by ops; spark.executor.memory 4096m → 2048m")
    application.conf = {**CONF, **wanted}
    answer = application.run(
        heap_committed_bytes=2 * GIB, heap_used_bytes=1.9 * GIB, resident_bytes=2.7 * GIB
    )
    assert isinstance(answer, Hold) and "P1 was held back: its parameter is pinned" in answer.reason


def test_a_value_that_no_host_can_give_is_said_and_stops_no_rule():
    application = Application(dataclasses.replace(WIDE, quota_bytes=10 * GIB))
    application.said = parse_said({"pin": ["heap=100g"], "by": "ops"}, "here")
    answer = application.run()
    assert isinstance(answer, Hold) and answer.reason.startswith("set by ops, and cannot be met: ")
    unused = {"resident_bytes": 3.9 * GIB}
    answer = application.run(30, **unused)
    assert isinstance(answer, Resize) and answer.reason.startswith("P7"), answer.reason


@pytest.mark.parametrize(
    "body", [{"pin": "heap"}, {"veto": ["P9"]}, {"pin": ["hip"]}, {"force": 3}, {"x": 1}, []]
)
def test_a_bad_word_names_its_place(body):
    with pytest.raises(BadInput, match="here"):
        parse_said(body, "here")


def test_a_host_cuts_a_larger_heap_down_and_says_so():
    answer = Application(dataclasses.replace(WIDE, host_bytes=6 * GIB)).run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "5120m"}
    assert "7 GiB for one executor exceed what it may have: 6 GiB instead" in answer.reason


def test_a_quota_is_shared_by_the_executors_that_are_held():
    answer = Application(dataclasses.replace(WIDE, quota_bytes=11 * GIB)).run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Resize) and answer.settings == {"spark.executor.memory": "4608m"}


def test_what_cannot_be_met_at_all_is_held_and_said():
    answer = Application(dataclasses.replace(WIDE, quota_bytes=10 * GIB)).run(heap_used_bytes=3.9 * GIB)
    assert isinstance(answer, Hold) and "P1 cannot be met" in answer.reason


def test_executors_are_cut_down_to_the_quota():
    application = Application(dataclasses.replace(WIDE, quota_cores=7), needed=9)
    for number in range(6):
        query = a_query(10.0 * number, backlog=1000.0 * (number + 1))
        window = a_window(10.0 * number + 10, 2, queries=(query,))
        answer = application.policy.propose(dataclasses.replace(window, sizing=SizingFacts(CONF)))
    assert isinstance(answer, Scale) and answer.parallelism == {"executors": 3}
    assert "9 executors are needed and 3 fit: the quota is 7 cores" in answer.reason


def test_settings_that_cannot_be_read_are_said():
    answer = Application(conf={"spark.executor.memory": "much"}).run(8)
    assert isinstance(answer, NotReady) and "'much' is not a size" in str(answer)
