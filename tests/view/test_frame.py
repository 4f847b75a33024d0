"""The frame of all pages: every value is escaped, and the plotting library is there once or not at all."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from penstock.errors import ActionFailed
from penstock.view.charts import draw_critical_path
from penstock.view.frame import charts_page, render_page, render_template, write_text
from penstock.view.run_page import render_run_page
from penstock.view.state_page import render_state_page
from tests.view import made_up, made_up_state

SPIKY = "</script><script>alert(1)</script>"
LIBRARY = "* plotly.js v"


def test_title_subtitle_and_tab_are_text_and_so_is_a_body_that_is_not_markup():
    page = charts_page(SPIKY, SPIKY, Markup("<p>body</p>"))
    assert SPIKY not in page and "alert(1)" in page and "<p>body</p>" in page
    assert SPIKY not in charts_page("", "", SPIKY)


def test_values_are_escaped_unless_they_are_markup():
    figures = [(SPIKY, SPIKY, SPIKY), ("label", "value", "")]
    page = render_page("replay.html.j2", SPIKY, SPIKY, charts=False, figures=figures, chart=Markup("<i>"),
                       policy=SPIKY, remarks=[SPIKY], rows=[(SPIKY,)])  # fmt: skip
    assert SPIKY not in page and "<i>" in page and page.count('class="note"') == 1


def test_the_plotting_library_is_in_a_page_once_if_it_has_charts():
    assert render_run_page(made_up.status()).count(LIBRARY) == 1
    assert render_state_page(made_up_state.state(), "app-1", "").count(LIBRARY) == 1
    assert LIBRARY not in render_state_page(made_up_state.state(queries=[]), "app-1", "")


def test_a_name_that_closes_the_script_of_a_chart_does_not():
    (query,) = made_up.status()["queries"]
    drawn = draw_critical_path([{**query, "name": SPIKY}]).to_html(full_html=False, include_plotlyjs=False)
    assert SPIKY not in drawn


def test_a_value_that_a_template_lacks_is_an_error_and_not_a_gap():
    with pytest.raises(UndefinedError, match="figures"):
        render_page("replay.html.j2", "title", "", charts=False)


def test_a_drawing_is_escaped_too():
    boxes = [{"x": 0, "y": 0, "kind": "w", "corner": 6, "error": SPIKY, "texts": [("n", SPIKY)]}]
    size = {"width": 1, "height": 1, "box_width": 1, "box_height": 1}
    drawing = render_template("pipeline.svg.j2", title=SPIKY, paths=[], boxes=boxes, **size)
    assert SPIKY not in drawing and drawing.count("alert(1)") == 3
    assert drawing.startswith("<svg ")


def test_a_page_is_written_where_asked_and_a_place_that_cannot_be_written_is_named(tmp_path):
    path = write_text("<!doctype html>", tmp_path / "new" / "run.html")
    assert path.is_absolute() and path.read_text() == "<!doctype html>"
    with pytest.raises(ActionFailed, match=r"cannot write the page .*page\.html"):
        write_text("", path / "page.html")
