"""Claims on diagnosis, from made-up causes and hot keys."""

import pytest

from penstock_lab.claims import snailtrail
from penstock_lab.claims.claim import Chart, Verdict
from penstock_lab.experiments.diagnosing import MadeCause, Snapshot
from penstock_lab.experiments.measurement import Measurement
from tests.lab.claims import made_outcomes
from tests.lab.made_up import batches, draw_page


def hot(**changes):
    return made_outcomes.hot(0.5, **changes)


def test_a_straggler_is_named_by_participation_whatever_the_times_of_tasks_are():
    assert snailtrail.judge_straggler(hot(times_median=None)).verdict is Verdict.REPRODUCED
    elsewhere = snailtrail.judge_straggler(hot(hot_executor="executor 2"))
    assert elsewhere.verdict is Verdict.WORSE
    assert elsewhere.measured == "executor 1 with 70% of the critical path; the hot bin is on executor 2"
    assert snailtrail.judge_straggler(hot(participation={})).verdict is Verdict.WORSE


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Verdict.REPRODUCED),
        ({"veto": ""}, Verdict.WORSE),
        ({"veto": "", "ds2_executors": None}, Verdict.REPRODUCED),
        ({"veto": "", "ds2_executors": 4}, Verdict.REPRODUCED),
    ],
)
def test_ds2_stays_where_growth_would_not_help(changes, expected):
    assert snailtrail.judge_ds2(hot(**changes)).verdict is expected


def test_only_growth_is_said_to_be_vetoed():
    assert "asks for 7 executors; growth is vetoed" in snailtrail.judge_ds2(hot()).measured
    assert snailtrail.judge_ds2(hot(ds2_executors=3)).measured == "asks for 3 executors"
    silent = snailtrail.judge_ds2(hot(ds2_executors=None, ds2="no batch finished", ds2_answered=False))
    assert (silent.verdict, silent.measured) == (Verdict.NOT_COMPARABLE, "no answer: no batch finished")


def test_moving_is_told_with_what_it_brings_and_what_it_cannot_bring():
    finding = snailtrail.show_moving(hot())
    assert finding.measured == "batches of 2.40 s after 3 bins moved, 20% less"
    assert finding.baseline == "left alone: 3.00 s" and "2.10 s" in finding.why
    nothing = snailtrail.show_moving(hot(settled=(), bins_moved=0))
    assert nothing.measured == "nothing was worth a move"


def test_skew_targets_count_stragglers_missed_and_batches_that_got_longer():
    met = [
        target.met
        for target in snailtrail.judge_skew_targets(
            [hot().make_row(), hot(hot_executor="executor 2").make_row()]
        )
    ]
    assert met == [False, True, True]
    worse = hot(settled=batches(4.0, start=60.0), imbalance=(1.0, 1.2)).make_row()
    assert [target.met for target in snailtrail.judge_skew_targets([worse])] == [True, False, False]


def a_case(name, found, driver_share=0.8, driver_profile=0.3):
    operators = {"flat-map 1: MapInArrow": 0.6, "flat-map 2: MapInArrow": 0.1}
    course = [Snapshot(at, driver_share, driver_profile) for at in (0.0, 0.25)]
    return MadeCause(
        name, 3.0, found, "an answer", operators, driver_share, driver_profile, operators, course
    )


def test_the_operator_and_the_driver_are_judged_by_what_was_made_slow():
    assert snailtrail.judge_operator(a_case("flat-map", "flat-map")).verdict is Verdict.REPRODUCED
    assert snailtrail.judge_operator(a_case("flat-map", "count")).verdict is Verdict.WORSE
    baseline = snailtrail.judge_operator(a_case("flat-map", "flat-map")).baseline
    assert baseline == "a conventional profile: source and FlatMap 60%, Count 10%"
    assert snailtrail.judge_driver(a_case("driver", "driver")).verdict is Verdict.REPRODUCED
    assert snailtrail.judge_driver(a_case("driver", "driver", 0.2, 0.3)).verdict is Verdict.WORSE


def test_the_driver_is_drawn_snapshot_by_snapshot():
    chart = snailtrail.draw_driver(a_case("driver", "driver"))
    assert chart.series == [
        ("critical participation", [0.0, 0.25], [0.8, 0.8]),
        ("conventional profile", [0.0, 0.25], [0.3, 0.3]),
    ]
    assert chart in snailtrail.draw_causes([a_case("driver", "driver")])


def test_every_kind_of_chart_can_be_drawn_and_kept():
    charts = [
        Chart("latency", "s", "s", [("fluid", [0.0, 1.0], [1.0, 2.0])], points=True, logarithmic="y"),
        snailtrail.draw_participations([hot()]),
        *snailtrail.draw_hot_timelines([hot(), hot(settled=())]),
        *snailtrail.draw_causes([a_case("flat-map", "flat-map")]),
        snailtrail.draw_driver(a_case("driver", "driver")),
        Chart("spread", "", "seconds", [("one", [1.0, 2.0], [3.0, 4.0])], boxes=True),
    ]
    text, kinds = draw_page(charts), (("shape", "hv"), ("type", "log"), ("type", "box"))
    assert all(f'"{key}":"{kind}"' in text for key, kind in kinds)


def test_the_tables_of_diagnosis_leave_out_windows_that_were_not_published():
    rows = [{"window_s": seconds, "latency_s": 0.01, "events_per_s": 4e6} for seconds in (1, 2, 1666)]
    figures = {"kernel_events_per_s_longest": 4e6, "worst_latency_of_window": 0.01, "growth_exponent": 1.0}
    found = snailtrail.judge_tables(Measurement(rows, figures))
    published = [claim for claim in found.claims if not claim.target]
    assert [claim.verdict for claim in published] == [Verdict.BETTER] * 2
    assert [claim.met for claim in found.targets] == [False, True, True]
    assert [chart.title for chart in found.charts] == ["table 3.3", "table 3.4"]
    assert found.charts[1].series[1] == ("ours", [1.0, 2.0], [4.0, 4.0])


def test_a_cause_that_was_not_named_misses_the_target():
    causes = [a_case("flat-map", "flat-map"), a_case("driver", "tasks")]
    for chosen, met in ((causes[:1], True), (causes, False)):
        measured = Measurement([cause.make_row() for cause in chosen], found=chosen)
        (target,) = snailtrail.judge_causes(measured).targets
        assert target.met is met


def test_published_tables_have_their_nine_intervals():
    assert list(snailtrail.TABLE_3_3) == list(snailtrail.TABLE_3_4) == [2**power for power in range(9)]
