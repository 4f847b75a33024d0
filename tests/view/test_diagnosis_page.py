"""The page of a diagnosis: complete, without the network, with every text escaped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.diagnose.diagnosis import Diagnosis, diagnose_log
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from penstock.view.diagnosis_page import draw_course, render_diagnosis_page
from penstock.view.stage_tables import PageLinks
from penstock.view.streaming_page import draw_batches
from penstock.view.timeline_rows import show_timeline
from tests.diagnose.logs import skewed_job, streaming_job
from tests.diagnose.test_stage_table import joined
from tests.diagnose.test_streaming import sources, told_of_state
from tests.view.test_run_page import read

SPIKY = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def skewed() -> Diagnosis:
    return diagnose_log(read_log(skewed_job().lines), Span(window_us=1_000_000))


def test_the_page_shows_the_answer_what_to_do_and_what_if_and_loads_nothing(skewed: Diagnosis) -> None:
    reader = read(render_diagnosis_page([skewed]))
    assert reader.addresses
    assert all(address.startswith("#") for address in reader.addresses)
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
    assert reader.addresses[:2] == ["#application-0", "#application-1"]
    assert len(set(reader.names)) == len(reader.names)
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


def test_every_link_leads_to_a_part_of_the_page() -> None:
    found = diagnose_log(joined(), Span())
    reader = read(render_diagnosis_page([found]))
    assert {address.removeprefix("#") for address in reader.addresses} <= set(reader.names)
    # the answer names the operator, the timeline and the pieces lead to the stage, the stage to its node
    wanted = ("#a0-operator-0", "#a0-stage-3-0", "#a0-sql-7-0")
    assert set(wanted) <= set(reader.addresses)
    assert "sort-merge join of orders and items on id" in " ".join(reader.shown)


def test_tables_sort_by_values_and_not_by_their_texts(skewed: Diagnosis) -> None:
    page = render_diagnosis_page([skewed])
    assert page.count('<table class="sorts">') >= 5
    assert 'data-value="5.973"' in page and "aria-sort" in page


def test_the_timeline_has_a_row_for_each_executor_and_the_path_on_it(skewed: Diagnosis) -> None:
    assert skewed.timeline
    shown = show_timeline(skewed.timeline, PageLinks(skewed, "a0"))
    assert [row["name"] for row in shown["rows"]] == ["jobs", "driver", "executor 1", "executor 2"]
    longest = max((bar for row in shown["rows"] for bar in row["path"]), key=lambda bar: bar["width"])
    assert longest in shown["rows"][3]["path"] and longest["link"] == "#a0-stage-1-0"
    for row in shown["rows"]:
        assert all(
            0 <= bar["left"] <= bar["left"] + bar["width"] <= 100.001 for bar in row["bars"] + row["path"]
        )


def test_each_query_is_drawn_with_its_phases_and_the_cold_batch_apart() -> None:
    cold = {0: {"queryPlanning": 2300, "triggerExecution": 3900},
            3: {"addBatch": 2900, "triggerExecution": 3700}}  # fmt: skip
    found = diagnose_log(read_log(streaming_job(6, cold).lines), Span())
    shown = " ".join(read(render_diagnosis_page([found])).shown)
    assert "Batch 0 was cold: 3.9 s instead of 2 s" in shown
    assert "running took 2.9 s, usually 1.2 s" in shown
    bars = {trace.name: trace for trace in draw_batches(found.streaming[0]).data if trace.type == "bar"}
    assert list(bars["running"].y) == [1.2, 1.2, 2.9, 1.2, 1.2]


def test_state_is_drawn_with_the_parts_of_its_commit() -> None:
    told = {"stateOperators": [told_of_state(900, sync=800)], "sources": sources(10)}
    found = diagnose_log(read_log(streaming_job(4, **told).lines), Span())
    names = {trace.name for trace in draw_batches(found.streaming[0]).data}
    assert {"state rows", "late rows", "state memory", "update", "removal", "commit: upload"} <= names


def test_an_application_without_a_finished_job_has_a_page_too(skewed: Diagnosis) -> None:
    found = replace(skewed, what_if=None, findings=[], windows=[skewed.whole])
    page = render_diagnosis_page([found])
    assert "Nothing stands out." in page
    assert "What if" not in page
