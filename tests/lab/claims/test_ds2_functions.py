"""Verdicts on DS2 and Dhalion on a cluster, from rows and courses as the benchmark gives them."""

import pytest

from penstock_lab.claims.claim import Verdict
from penstock_lab.claims.ds2.functions import (
    draw_courses,
    draw_steps,
    judge_convergence,
    judge_query,
    judge_systems,
)
from penstock_lab.experiments.measurement import Measurement
from penstock_lab.experiments.nexmark import SLOTS_OF_SERVICE, Convergence, bound_executors
from penstock_lab.experiments.word_count.functions import Sample


def a_row(steps, split, count, seconds=100.0):
    final = {"split": split, "count": count}
    right = {"split": 10, "count": 20}
    waited = {"backlog_record_seconds": 1_600_000, "seconds_to_converge": seconds}
    return {"steps": steps, "final": final, "optimal": right, **waited}


def verdicts(ds2, dhalion):
    return [finding.verdict for finding in judge_systems(ds2, dhalion)]


def test_one_step_to_the_right_sizes_reproduces_the_paper_and_many_steps_of_dhalion_do():
    found = judge_systems(a_row(1, 10, 20), a_row(6, 22, 30, 3300.0))
    reproduced, told = Verdict.REPRODUCED, Verdict.NOT_COMPARABLE
    assert [one.verdict for one in found] == [
        reproduced,
        reproduced,
        told,
        reproduced,
        reproduced,
        reproduced,
    ]
    assert found[1].baseline == "dhalion: 22 and 30"
    assert found[2].measured == "1,600,000 record-seconds"


def test_too_few_instances_are_worse_not_better_and_a_quick_dhalion_is_told():
    sizes, time = (verdicts(a_row(1, 9, 20), a_row(1, 10, 20, 150.0))[place] for place in (1, 5))
    assert (sizes, time) == (Verdict.WORSE, Verdict.WORSE)
    more, holds = verdicts(a_row(1, 10, 20), a_row(1, 10, 20))[3:5]
    assert (more, holds) == (Verdict.WORSE, Verdict.WORSE)


def test_one_that_failed_leaves_the_findings_of_the_other():
    assert [finding.baseline for finding in judge_systems(a_row(1, 10, 20), None)] == [None] * 3
    *_, time = judge_systems(None, a_row(3, 9, 32))
    assert time.verdict is Verdict.NOT_COMPARABLE
    assert judge_systems(None, None) == []
    never = judge_systems(a_row(0, 3, 6, None), a_row(3, 9, 32))
    assert never[-1].verdict is Verdict.NOT_COMPARABLE


def test_the_course_of_each_function_is_drawn():
    samples = [Sample(5.0, 0.0, {"split": 3, "count": 6}), Sample(7.0, 30.0, {"split": 10, "count": 20})]
    held, waiting = draw_courses({"ds2": samples})
    assert held.series == [("ds2, split", [0.0, 2.0], [3.0, 10.0]), ("ds2, count", [0.0, 2.0], [6.0, 20.0])]
    assert waiting.series == [("ds2", [0.0, 2.0], [0.0, 30.0])]
    assert draw_courses({}) == []


@pytest.mark.parametrize(
    ("decided", "final", "expected"),
    [
        ((2,), 2, Verdict.REPRODUCED),
        ((3, 2, 3), 3, Verdict.REPRODUCED),
        ((2, 3, 2, 3), 3, Verdict.WORSE),
        ((), 5, Verdict.WORSE),
    ],
)
def test_queries_converge_to_one_size_in_few_steps(decided, final, expected):
    runs = [Convergence(2, 1, (2, 3), 3), Convergence(2, 5, decided, final)]
    found = judge_query(2, runs)
    assert found.verdict is expected
    assert "from 1: 2 → 3; from 5: " in found.measured
    assert draw_steps(runs).series[0] == ("Q2 from 1", [0, 1, 2], [1, 2, 3])


@pytest.mark.parametrize("query", SLOTS_OF_SERVICE)
def test_sizes_that_are_right_for_a_query_hold_its_service_and_are_not_all_there_is(query):
    """By hand: 2 slots of service need one executor of two slots, and with a headroom of a fifth two."""
    least, most = bound_executors(query)
    assert 2 * least >= SLOTS_OF_SERVICE[query] > 2 * (least - 1)
    assert least < most <= 5
    assert bound_executors(1) == (1, 3)


def test_to_end_with_all_executors_from_both_starts_is_no_convergence():
    found = judge_query(1, [Convergence(1, 1, (5,), 5), Convergence(1, 5, (), 5)])
    assert found.verdict is Verdict.WORSE and "1 to 3 are right for 2 slots" in found.why


def test_to_end_at_one_size_that_cannot_serve_the_load_is_no_convergence():
    found = judge_query(2, [Convergence(2, 1, (), 1), Convergence(2, 5, (1,), 1)])
    assert found.verdict is Verdict.WORSE and "right for 3 slots" in found.why


def test_one_start_alone_does_not_show_that_all_lead_to_one_size():
    found = judge_query(1, [Convergence(1, 1, (3,), 3)])
    assert found.verdict is Verdict.NOT_COMPARABLE and "from 1: 3" in found.measured


def test_targets_of_convergence_count_steps_and_spread():
    def met(found):
        measured = Measurement([one.make_row() for one in found], found=found)
        return [claim.met for claim in judge_convergence(measured).targets]

    good = [Convergence(1, 1, (3,), 3), Convergence(1, 5, (3,), 3)]
    assert met(good) == [True, True]
    assert met([Convergence(1, 1, (2, 3, 2, 3), 3), good[1]]) == [False, True]
    assert met([good[0], Convergence(1, 5, (), 5)]) == [True, False]
