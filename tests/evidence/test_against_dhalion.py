"""What is said of DS2 and Dhalion on a cluster, from rows and courses as the benchmark gives them."""

from penstock.bench.wordcount_functions import Sample
from penstock.evidence.against_dhalion import charts, findings_of
from penstock.evidence.findings import Verdict


def a_row(steps, split, count, seconds=100.0):
    final = {"split": split, "count": count}
    right = {"split": 10, "count": 20}
    waited = {"backlog_record_seconds": 1_600_000, "seconds_to_converge": seconds}
    return {"steps": steps, "final": final, "optimal": right, **waited}


def verdicts(ds2, dhalion):
    return [finding.verdict for finding in findings_of(ds2, dhalion)]


def test_one_step_to_the_right_sizes_reproduces_the_paper_and_many_steps_of_dhalion_do():
    found = findings_of(a_row(1, 10, 20), a_row(6, 22, 30, 3300.0))
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
    assert found[2].ours == "1,600,000 record-seconds"


def test_too_few_instances_are_worse_not_better_and_a_quick_dhalion_is_told():
    sizes, time = (verdicts(a_row(1, 9, 20), a_row(1, 10, 20, 150.0))[place] for place in (1, 5))
    assert (sizes, time) == (Verdict.WORSE, Verdict.WORSE)
    more, holds = verdicts(a_row(1, 10, 20), a_row(1, 10, 20))[3:5]
    assert (more, holds) == (Verdict.WORSE, Verdict.WORSE)


def test_one_that_failed_leaves_the_findings_of_the_other():
    assert [finding.baseline for finding in findings_of(a_row(1, 10, 20), None)] == [None] * 3
    *_, time = findings_of(None, a_row(3, 9, 32))
    assert time.verdict is Verdict.NOT_COMPARABLE
    assert findings_of(None, None) == []
    never = findings_of(a_row(0, 3, 6, None), a_row(3, 9, 32))
    assert never[-1].verdict is Verdict.NOT_COMPARABLE


def test_the_course_of_each_function_is_drawn():
    samples = [Sample(5.0, 0.0, {"split": 3, "count": 6}), Sample(7.0, 30.0, {"split": 10, "count": 20})]
    held, waiting = charts({"ds2": samples})
    assert held.series == [("ds2, split", [0.0, 2.0], [3.0, 10.0]), ("ds2, count", [0.0, 2.0], [6.0, 20.0])]
    assert waiting.series == [("ds2", [0.0, 2.0], [0.0, 30.0])]
    assert charts({}) == []
