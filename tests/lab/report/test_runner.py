"""Parts are run, kept, resumed and judged; one that fails on purpose is reported as failed."""

import math
import re
from dataclasses import replace

import pytest

from penstock.errors import BadInput, PenstockError
from penstock_lab.claims.claim import Chart, Claim, Judged, Verdict
from penstock_lab.commands.claims import find_exit_code, write_report
from penstock_lab.experiments.measurement import MOST_CHARACTERS, Measurement, shorten_error
from penstock_lab.report.catalog import OWN, PARTS, choose_parts
from penstock_lab.report.counts import count_claims, count_verdicts
from penstock_lab.report.page import PAPERS, build_page, format_figure, plot_chart
from penstock_lab.report.runner import (
    UNMEASURED,
    KeptOutcomes,
    PartOutcome,
    PartStatus,
    ReportPart,
    describe_machine,
    run_parts,
    tell_date,
)


class Counting:
    """A part's work that notes each run, and fails while it is told to."""

    def __init__(self, fails=False):
        self.runs = []
        self.fails = fails

    def __call__(self, extent, progress):
        assert extent.report
        self.runs.append(extent.quick)
        progress("working")
        if self.fails:
            raise RuntimeError("the disk is on fire")
        return Measurement([{"steps": 1}], notes=["a note"])


def judge(measured):
    claim = Claim.judge_figure(
        "steps", 1, measured.rows[0]["steps"], figure="A, figure 1", baseline="spark: 6", conditions="tiny"
    )
    chart = Chart("steps", "x", "y", [("ours", [1, 2], [1.0, None])])
    return Judged([claim], [chart])


@pytest.fixture
def state(tmp_path):
    return KeptOutcomes(tmp_path / "evidence" / "state.json")


def a_part(name, work, **more):
    return ReportPart(name, f"Title of {name}", "figure 1", work, judge, 10, 20, **more)


def run(parts, state, quick=True):
    told = []
    return run_parts(parts, quick, state, told.append), told


def test_a_failing_part_is_reported_and_the_others_go_on(state):
    parts = [a_part("good", Counting()), a_part("bad", Counting(fails=True)), a_part("last", Counting())]
    outcomes, told = run(parts, state)
    assert [one.status for one in outcomes] == [PartStatus.DONE, PartStatus.FAILED, PartStatus.DONE]
    assert "RuntimeError: the disk is on fire (test_runner.py, line" in outcomes[1].reason
    assert any("part 2 of 3, bad, about" in text and "s left in all" in text for text in told)
    report = build_page(outcomes, "a machine", "a day")
    assert "failed: RuntimeError: the disk is on fire" in report
    assert count_verdicts(outcomes) == "1 reproduced, 1 part failed"
    assert (find_exit_code(outcomes), find_exit_code(outcomes[:1])) == (1, 0)


def test_finished_parts_are_kept_and_failed_ones_tried_again(state):
    good, bad = Counting(), Counting(fails=True)
    parts = [a_part("good", good), a_part("bad", bad)]
    first, _ = run(parts, state)
    bad.fails = False
    second, told = run(parts, state)
    assert (len(good.runs), len(bad.runs)) == (1, 2)
    assert second[0].to_json() == first[0].to_json()
    assert [one.status for one in second] == [PartStatus.DONE, PartStatus.DONE]
    assert "good: kept from an earlier run" in told


def test_a_quick_result_does_not_serve_a_full_run_but_the_other_way_round(state):
    work = Counting()
    run([a_part("one", work)], state, quick=True)
    run([a_part("one", work)], state, quick=False)
    run([a_part("one", work)], state, quick=True)
    assert work.runs == [True, False]


def test_other_parts_in_the_state_survive_a_run_of_some(state):
    run([a_part("one", Counting())], state)
    run([a_part("two", Counting())], state)
    assert set(state.read_outcomes()) == {"one", "two"}


def test_quick_results_outlive_a_full_run_of_another_part(state):
    run([a_part("one", Counting())], state, quick=True)
    run([a_part("two", Counting())], state, quick=False)
    again = Counting()
    run([a_part("one", again)], state, quick=True)
    assert again.runs == []


def test_a_full_run_that_fails_is_told_and_leaves_what_a_quick_one_had_found(state):
    run([a_part("one", Counting())], state, quick=True)
    (failed,), _ = run([a_part("one", Counting(fails=True))], state, quick=False)
    assert failed.status is PartStatus.FAILED
    again = Counting()
    (kept,), _ = run([a_part("one", again)], state, quick=True)
    assert (kept.status, again.runs) == (PartStatus.DONE, [])


def test_an_error_from_java_is_told_without_its_stack():
    stack = "\tat org.Spark.run\n\t... 7 more"
    text = f"An error occurred while calling o45.start.\n: java.io.IOException: disk\n{stack}"
    assert shorten_error(text) == "An error occurred while calling o45.start. : java.io.IOException: disk"
    assert len(shorten_error("x" * 5000)) == MOST_CHARACTERS + 1


def test_the_page_says_which_parts_are_from_a_quick_run_and_states_shared_conditions_once(state):
    parts = [a_part("one", Counting()), a_part("two", Counting())]
    outcomes, _ = run(parts, state)
    assert "quick run: shorter" in build_page(outcomes, "a machine", "a day")
    mixed = [outcomes[0], replace(outcomes[1], quick=False)]
    assert "1 of 2 parts from a quick run" in build_page(mixed, "here", "now")
    whole = build_page([replace(outcomes[0], quick=False)], "here", "now")
    assert "full run" in whole and whole.count(">tiny<") == 1 and "<th>conditions</th>" not in whole


def test_a_part_whose_capability_is_missing_says_so(state):
    parts = [
        a_part("absent", Counting(), needs=("penstock.bench.teleport",)),
        a_part("present", Counting(), needs=("penstock_lab.report.bench",)),
    ]
    outcomes, _ = run(parts, state)
    assert [one.status for one in outcomes] == [PartStatus.MISSING, PartStatus.DONE]
    assert "penstock.bench.teleport" in outcomes[0].reason


def test_a_part_too_long_for_a_quick_run_is_left_to_the_full_one_and_said_to_be(state):
    work = Counting()
    part = ReportPart("long", "Long", "figure 2", work, judge, None, 900)
    (left,), _ = run([part], state)
    assert (left.status, left.reason) == (PartStatus.LEFT, "it takes about 15 min: run it without --quick")
    assert (count_verdicts([left]), find_exit_code([left]), work.runs) == (
        "1 part left to the full run",
        0,
        [],
    )
    assert "figure 2</p>" in build_page([left], "a machine", "a day")
    (ran,), _ = run([part], state, quick=False)
    assert (ran.status, work.runs) == (PartStatus.DONE, [False])
    assert "figure 2 · full run, less than 1 s</p>" in build_page([ran], describe_machine(), tell_date())


def test_what_an_earlier_run_found_elsewhere_says_so(state):
    (ran,), _ = run([a_part("good", Counting())], state, quick=False)
    assert (ran.date, ran.machine) == (tell_date(), describe_machine()) and state.read_outcomes()[
        "good"
    ] == ran
    older = replace(ran, date="2020-02-29", machine="64 cores, Plan <9>")
    text = build_page([older, ran], describe_machine(), tell_date())
    assert text.count("less than 1 s · run on 2020-02-29 · 64 cores, Plan &lt;9&gt;</p>") == 1
    assert text.count("less than 1 s</p>") == 1 and f"{describe_machine()} · written on {tell_date()}" in text


def test_what_a_version_without_dates_has_kept_is_read(state):
    (ran,), _ = run([a_part("good", Counting())], state, quick=False)
    plain = {key: value for key, value in ran.to_json().items() if key not in ("date", "machine")}
    kept = PartOutcome.from_json(plain)
    assert (kept.date, kept.machine) == ("", "") and "less than 1 s</p>" in build_page(
        [kept], "a machine", "a day"
    )


def test_the_time_left_shrinks_and_the_share_done_grows(state):
    parts = [ReportPart(name, name, "", Counting(), judge, 300, 600) for name in ("one", "two")]
    told, done = [], []
    run_parts(parts, True, state, told.append, done.append)
    assert done == pytest.approx([0, 0.5, 0.5, 1.0], abs=0.01)
    assert told[0] == "part 1 of 2, one, about 10 min left in all"
    # the first part took hardly any time, so the second, of five minutes, is expected to be short, too
    left = re.match(r"part 2 of 2, two, about (\d+) s left in all", told[2])
    assert left is not None and 30 <= int(left[1]) <= 75


def test_short_parts_that_come_first_say_little_of_a_long_one(state):
    told = []
    parts = [
        ReportPart("short", "Short", "", Counting(), judge, 60, 60),
        ReportPart("long", "Long", "", Counting(), judge, 5400, 5400),
    ]
    run_parts(parts, True, state, told.append)
    assert told[0] == "part 1 of 2, short, about 91 min left in all"
    left = re.match(r"part 2 of 2, long, about (\d+) min left in all", told[2])
    assert left is not None and 78 <= int(left[1]) <= 90


def test_a_last_part_that_outlasts_its_estimate_is_not_said_to_be_over(state):
    told = []
    run_parts([ReportPart("one", "One", "", Counting(), judge, 0, 0)], True, state, told.append)
    assert told[0] == "part 1 of 1, one, takes longer than estimated"


def test_a_part_that_is_not_run_is_not_said_to_take_longer_than_estimated(state):
    parts = [
        a_part("good", Counting()),
        ReportPart("long", "Long", "figure 2", Counting(), judge, None, 900),
        a_part("absent", Counting(), needs=("penstock.bench.teleport",)),
    ]
    _, told = run(parts, state)
    assert all("part 1 of 3, good" in text for text in told)


def test_a_state_file_that_is_none_is_an_error(state):
    state.path.parent.mkdir()
    state.path.write_text("{}")
    with pytest.raises(BadInput, match="state file"):
        run([a_part("one", Counting())], state)


@pytest.mark.parametrize(("place", "said"), [(".", "Is a directory"), ("file", "Not a directory")])
def test_a_place_that_cannot_be_written_is_known_before_any_part_runs(tmp_path, place, said):
    (tmp_path / "file").touch()
    (tmp_path / "state.json").mkdir()
    work = Counting()
    with pytest.raises(PenstockError, match=rf"state\.json: .*{said}"):
        run([a_part("one", work)], KeptOutcomes(tmp_path / place / "state.json"))
    assert work.runs == []


def test_what_is_kept_can_be_forgotten_unless_it_is_no_file(state):
    state.forget()
    state.keep([])
    state.forget()
    assert not state.path.exists()
    state.path.mkdir()
    with pytest.raises(BadInput, match=r"cannot forget .*state\.json"):
        state.forget()


def test_to_run_one_part_afresh_leaves_the_others_their_hours(state):
    run([a_part("one", Counting()), a_part("two", Counting())], state)
    state.forget(["one"])
    assert set(state.read_outcomes()) == {"two"}
    state.forget(["two"])
    assert not state.path.exists()
    state.path.write_text("torn")
    state.forget(["one"])
    assert state.read_outcomes() == {}


def test_an_outcome_survives_being_written(state):
    outcomes, _ = run([a_part("one", Counting())], state)
    again = PartOutcome.from_json(outcomes[0].to_json())
    assert again.to_json() == outcomes[0].to_json()
    assert again.result.claims == outcomes[0].result.claims


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [(1, Verdict.BETTER), (2, Verdict.REPRODUCED), (3, Verdict.WORSE), (0, Verdict.WORSE)],
)
def test_to_take_no_step_where_some_were_needed_is_not_better(steps, verdict):
    assert Claim.judge_steps("x", 2, steps, figure="A", why="given").verdict is verdict


@pytest.mark.parametrize(
    ("ours", "lower", "verdict"),
    [
        (10.5, True, Verdict.REPRODUCED),
        (8.0, True, Verdict.BETTER),
        (12.0, True, Verdict.WORSE),
        (8.0, False, Verdict.WORSE),
        (12.0, False, Verdict.BETTER),
        (None, True, Verdict.NOT_COMPARABLE),
        (math.nan, True, Verdict.NOT_COMPARABLE),
    ],
)
def test_verdicts_are_computed(ours, lower, verdict):
    assert Claim.judge_figure("x", 10.0, ours, figure="A", lower_is_better=lower).verdict is verdict


def test_page_and_json_hold_every_finding_and_the_reason_for_no_comparison(tmp_path):
    claim = Claim("speed <fast>", 3, "ours", Verdict.NOT_COMPARABLE, "other machine")
    outcome = PartOutcome("one", "One", "table 1", PartStatus.DONE, 2.0, False, result=Judged([claim]))
    result = write_report([outcome], False, tmp_path)
    text = (tmp_path / "evidence.html").read_text()
    assert "speed &lt;fast&gt;" in text and ">not comparable</span>" in text and "other machine" in text
    assert result["parts"][0]["result"]["findings"][0]["verdict"] == "not comparable"
    assert (tmp_path / "evidence.json").stat().st_size > 0
    assert f"written on {result['written'][:10]}" in text


def test_every_paper_is_named_in_full_where_its_figures_are_shown():
    shown_as = {part.shows for part in PARTS}
    assert all(any(name in shows for name in (*PAPERS, OWN)) for shows in shown_as)
    outcome = PartOutcome("one", "One", "Megaphone, figure 5.1", PartStatus.DONE, 2.0, False)
    text = build_page([outcome], "a machine", "a day")
    assert "thesis, ETH Zurich 2019, chapter 5" in text and "OSDI" not in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.65, 0.9, None], "[-1,0]"), ([1.2, 30.0], "[0,2]"), ([1.0, 1.0], "[0,1]"), ([0.0, None], None)],
)
def test_logarithmic_charts_show_whole_decades(values, expected):
    text = plot_chart(Chart("one", "x", "y", [("ours", [1, 2, 3], values)], logarithmic="y"))
    assert f'"range":{expected}' in text if expected else '"range"' not in text


@pytest.mark.parametrize(
    ("x", "whole"), [([0.0, 1.0, 2.0], True), ([0, 0.5, 1], False), ([0, 100, 200], False), (["a"], False)]
)
def test_few_whole_numbers_have_no_ticks_between_them(x, whole):
    assert ('"dtick":1' in plot_chart(Chart("one", "step", "y", [("ours", x, [1.0] * len(x))]))) == whole


def test_figures_are_shown_without_powers_of_ten():
    assert [format_figure(value) for value in (12345.6, 9999, 0.123456, "two", None)] == [
        "12,346",
        "9,999",
        "0.1235",
        "two",
        "–",
    ]


def test_parts_are_chosen_by_name():
    assert choose_parts([]) == list(PARTS)
    assert [part.name for part in choose_parts(["accuracy", "heron"])] == ["heron", "accuracy"]
    with pytest.raises(BadInput, match="did you mean 'accuracy'"):
        choose_parts(["acuracy"])
    with pytest.raises(BadInput, match="known: heron, "):
        choose_parts(["nope"])


def test_a_case_that_failed_is_a_claim_and_a_part_without_any_case_has_failed(state):
    lost = "q5 could not be measured: it ended"

    def part(rows):
        measured = Measurement(rows, notes=["a note"], failures=[lost])
        return a_part("one", lambda _extent, _progress: measured)

    (partly,), _ = run([part([{"steps": 1}])], state)
    *_, failed = partly.result.claims
    assert (failed.verdict, failed.why) == (Verdict.NOT_MET, lost)
    assert partly.result.notes == ["a note"]
    (nothing,), _ = run([part([])], KeptOutcomes(state.path.with_name("other.json")))
    assert nothing.status is PartStatus.FAILED and lost in nothing.reason


def test_a_target_that_the_report_does_not_measure_says_so_and_one_that_is_missed_is_not_met(state):
    targets = [Claim.judge_target("slow", "< 1", 2.0), Claim.judge_target("size", "<= 1", None)]
    part = ReportPart("one", "One", OWN, Counting(), lambda _: Judged(targets), 10, 20)
    (ran,), _ = run([part], state)
    assert [claim.verdict for claim in ran.result.claims] == [Verdict.NOT_MET, Verdict.NOT_COMPARABLE]
    assert ran.result.claims[1].why == UNMEASURED
    text = build_page([ran], "a machine", "a day")
    assert "<th>target</th>" in text and "&lt; 1" in text and "<th>published</th>" not in text


def an_outcome(name, *claims):
    return PartOutcome(name, name, "figures", PartStatus.DONE, 1.0, False, result=Judged(claims))


def a_result(name, verdict, figure="A, figure 1", **more):
    return Claim(name, 1, 2, verdict, figure=figure, **more)


def test_all_results_of_a_published_figure_count_once_and_the_worst_of_them_counts():
    good = an_outcome("one", a_result("x", Verdict.BETTER), a_result("y", Verdict.REPRODUCED))
    bad = an_outcome("two", a_result("z", Verdict.WORSE), a_result("w", Verdict.BETTER, figure="A, table 1"))
    assert count_verdicts([good]) == "1 reproduced"
    assert count_verdicts([good, bad]) == "of 2 claims 1 worse, 1 better"
    (claim, _) = count_claims([good, bad])
    assert (claim.name, claim.verdict, len(claim.results)) == ("A, figure 1", Verdict.WORSE, 3)


def test_illustrations_and_what_is_only_shown_are_in_no_count():
    likely = a_result("x", Verdict.REPRODUCED).illustrate("fitted")
    shown = Claim.show_beside("waited", None, 3, "the paper has none")
    assert (likely.verdict, likely.why) == (Verdict.ILLUSTRATION, "fitted")
    outcome = an_outcome("one", likely, shown)
    assert count_verdicts([outcome]) == "nothing was judged"
    assert "<h3>Illustrations</h3>" in build_page([outcome], "a machine", "a day")


def test_a_failure_is_no_illustration():
    failed = a_result("x", Verdict.WORSE)
    assert failed.illustrate("fitted") is failed


def test_targets_of_one_name_in_two_parts_are_two_claims():
    growth = Claim.judge_target("growth", "<= 1", 2.0)
    assert count_verdicts([an_outcome("one", growth), an_outcome("two", growth)]) == "of 2 claims 2 not met"


def test_the_page_begins_with_what_failed_and_its_settings():
    settings = "only shown with settings other than the defaults: utilisation=1.0"
    good = an_outcome("one", a_result("fine", Verdict.REPRODUCED))
    bad = an_outcome("two", a_result("broken", Verdict.WORSE, conditions=settings))
    text = build_page([good, bad], "a machine", "a day")
    failed, _, rest = text.partition("<h2>What failed</h2>")[2].partition("<h2>Claims</h2>")
    assert "broken" in failed and settings in failed
    assert "fine" not in failed and "fine" in rest
    assert "Nothing of what was run" in build_page([good], "a machine", "a day")
