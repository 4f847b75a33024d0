"""The page of a diagnosis: complete, without the network, with every text escaped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.diagnose.diagnosis import Diagnosis, diagnose_log
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from penstock.view.diagnosis_page import draw_course, draw_ranking, render_diagnosis_page
from tests.diagnose.logs import skewed_job
from tests.view.test_run_page import read

SPIKY = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def skewed() -> Diagnosis:
    return diagnose_log(read_log(skewed_job().lines), Span(window_us=1_000_000))


def test_the_page_shows_the_answer_what_to_do_and_what_if_and_loads_nothing(skewed: Diagnosis) -> None:
    reader = read(render_diagnosis_page([skewed]))
    assert reader.addresses == []
    assert "link" not in reader.tags
    shown = " ".join(reader.shown)
    parts = (
        "partition 7 on executor 2",
        "Worth up to 5 s",
        "What each window waited for",
        "without stragglers",
    )
    for part in parts:
        assert part in shown
    assert "Warnings" not in shown


def test_of_many_applications_a_list_of_answers_comes_first(skewed: Diagnosis) -> None:
    other = replace(skewed, name="other", warnings=["1 tasks that failed"])
    reader = read(render_diagnosis_page([skewed, other]))
    assert reader.addresses == ["#application-0", "#application-1"]
    shown = " ".join(reader.shown)
    assert "2 applications" in shown and "1 tasks that failed" in shown


def test_names_are_escaped(skewed: Diagnosis) -> None:
    whole = replace(skewed.whole, operator={SPIKY: 1.0}, communication=[(SPIKY, SPIKY, 1.0)])
    found = replace(skewed, name=SPIKY, application=SPIKY, answer=SPIKY, warnings=[SPIKY], whole=whole)
    page = render_diagnosis_page([found])
    assert SPIKY not in page
    assert "alert(1)" in page


def test_the_course_has_a_bar_for_each_window_by_cause(skewed: Diagnosis) -> None:
    figure = draw_course(skewed)
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    assert next(iter(bars)) == "run of tasks"
    heights = [sum(bar.y[place] for bar in bars.values()) for place in range(9)]
    assert heights == pytest.approx([window.length_us / 1e6 for window in skewed.windows], abs=0.05)


def test_long_names_are_cut_and_told_in_full_when_asked() -> None:
    name = "WholeStageCodegen > " * 8
    (bar,) = draw_ranking({name: 0.5, "small": 0.0001}).data
    assert len(bar.y) == 1 and bar.y[0].endswith("…")
    assert bar.hovertext[0] == name.replace(">", "&gt;")


def test_an_application_without_a_finished_job_has_a_page_too(skewed: Diagnosis) -> None:
    found = replace(skewed, what_if=None, findings=[], windows=[skewed.whole])
    page = render_diagnosis_page([found])
    assert "Nothing stands out." in page
    assert "What if" not in page
