"""The picture of a pipeline: every function and topic, with its figures where it runs."""

from __future__ import annotations

from xml.etree import ElementTree

from rich.console import Console

from penstock.view.pipeline import describe_last_decision, draw_svg, render_functions, render_graph
from tests.pipeline.test_definition import thumbnails

FIGURES = {
    "resize": {
        "parallelism": 3, "least": 1, "most": 15, "pinned": True, "arrival_per_second": 120.0,
        "observed_per_second": 118.2, "written_per_second": 118.2, "backlog_records": 4321.0,
        "busy_ratio": 0.82, "dead_letters": 2,
    },
    "recognise": {"parallelism": 5, "error": "it failed", "observed_per_second": float("nan")},
}  # fmt: skip


def texts(drawing):
    return [element.text or "" for element in ElementTree.fromstring(drawing).iter() if "text" in element.tag]


def test_the_svg_has_every_function_and_topic_with_its_figures():
    layout = thumbnails().layout()
    drawing = draw_svg(layout, FIGURES, "thumbnails & more")
    said = texts(drawing)
    for name in ("images", "small", "stored", "objects", "store", "resize ×3 pinned", "recognise ×5"):
        assert name in said, said
    assert "backlog 4,321, 2 dead" in said and "failed" in said and "118/s, busy 82%" in said
    root = ElementTree.fromstring(drawing)
    assert len([element for element in root.iter() if element.tag.endswith("rect")]) == 7
    assert len([e for e in root.iter() if e.tag.endswith("path")]) == 6 + 1
    assert 'class="w"' in drawing


def test_a_pipeline_that_does_not_run_is_drawn_without_figures():
    said = texts(draw_svg(thumbnails().layout(), {}, "thumbnails"))
    assert "resize" in said and not [text for text in said if "backlog" in text]


def test_a_long_name_fits_its_box_and_a_long_way_passes_below_all_boxes():
    pipeline, name = thumbnails(), "a-function-with-quite-a-long-name"
    pipeline.add(len, name=name, reads=["objects", "images"])
    root = ElementTree.fromstring(draw_svg(pipeline.layout(), {name: {"parallelism": 12}}, "t"))
    boxes = [e for e in root.iter() if e.tag.endswith("rect")]
    assert {float(box.get("width")) for box in boxes} == {float(boxes[0].get("width"))}
    assert float(boxes[0].get("width")) > 7 * len(f"{name} ×12")
    lowest = max(float(box.get("y")) + float(box.get("height")) for box in boxes)
    (lane,) = [e.get("d") for e in root.iter() if e.tag.endswith("path") and " H" in (e.get("d") or "")]
    assert lowest < float(lane.split(" H")[0].split()[-1]) < float(root.get("height"))


def test_boxes_do_not_overlap():
    root = ElementTree.fromstring(draw_svg(thumbnails().layout(), {}, "t"))
    places = [(e.get("x"), e.get("y")) for e in root.iter() if e.tag.endswith("rect")]
    assert len(set(places)) == len(places)


def on_terminal(shown, width=140):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(shown)
    return console.export_text()


def printed(figures, width=140):
    return on_terminal(render_functions(thumbnails().layout(), figures, "thumbnails"), width)


def test_the_terminal_draws_the_graph_from_the_outside_topics_on():
    figures = {**FIGURES, "store": {"parallelism": 2, "observed_per_second": 120.0, "busy_ratio": 0.4}}
    shown = on_terminal(render_graph(thumbnails().layout(), figures, "thumbnails"), width=80)
    assert [line.rstrip() for line in shown.splitlines()] == [
        "thumbnails",
        "└── images  120/s",
        "    ├── ▸ resize ×3 pinned  118/s, busy 82%, backlog 4,321, 2 dead",
        "    │   └── small  118/s",
        "    │       └── ▸ recognise ×5  –/s, busy –, failed",
        "    │           └── objects",
        "    └── ▸ store ×2  120/s, busy 40%, backlog –",
        "        └── stored",
    ]


def test_where_ways_meet_the_graph_goes_on_once():
    pipeline = thumbnails()
    pipeline.add(len, name="archive", reads=["stored", "objects"], writes="archived", schema="x int")
    shown = on_terminal(render_graph(pipeline.layout(), {}, "thumbnails"))
    assert (shown.count("▸ archive"), shown.count("archive  as above")) == (2, 1)
    assert shown.count("archived") == 1


def test_the_terminal_shows_rates_backlog_and_parallelism():
    shown = printed({"store": {}, **FIGURES})
    assert "3 pinned" in shown and "4,321" in shown and "82%" in shown
    assert "images → small" in shown and "recognise has failed: it failed" in shown


def test_the_terminal_shows_what_is_started_again_and_no_figures_of_what_does_not_run():
    again = {"resize": {"parallelism": 1, "trouble": "the broker is away"}, "store": {}, "recognise": {}}
    assert "resize is started again: the broker is away" in printed(again)
    assert "backlog" not in printed({}) and "images → small" in printed({})


def test_the_terminal_tells_of_a_batch_that_does_not_end():
    figures = {"resize": {"parallelism": 1, "at_batch_seconds": 300.4}, "store": {}, "recognise": {}}
    assert "resize has been at one batch for 300 s" in printed(figures)
    assert "one batch" not in printed({**figures, "resize": {"parallelism": 1, "at_batch_seconds": 3.0}})


def test_a_line_of_the_table_fits_a_narrow_terminal():
    figures = {**FIGURES["resize"], "parallelism": 12}
    shown = printed({"store": figures, "resize": figures, "recognise": figures}, width=80)
    lines = [line for line in shown.splitlines() if "→" in line and "reads" not in line]
    assert len(lines) == 3 and all("4,321" in line and "12 pinned" in line for line in lines)


def test_a_narrow_table_keeps_its_figures_whole_and_leaves_topics_to_the_drawing():
    figures = {**FIGURES["resize"], "parallelism": 12, "pinned": False, "backlog_records": 1_234_567.0}
    pipeline = thumbnails()
    pipeline.add(len, name="recognise-small-objects", reads="small")
    running = dict.fromkeys(pipeline.functions, figures)
    shown = on_terminal(render_functions(pipeline.layout(), running, "thumbnails", narrow=True), width=80)
    assert shown.count("1,234,567") == 4 and "12 of 1–15" in shown and "→" not in shown
    assert "→" in on_terminal(render_functions(pipeline.layout(), {}, "thumbnails", narrow=True), width=80)


def test_what_comes_from_a_topic_is_told_by_those_who_read_it_alone():
    pipeline = thumbnails()
    pipeline.topic("more", schema="x int")
    pipeline.add(len, name="both", reads=["images", "more"])
    figures = {**FIGURES, "both": {"parallelism": 1, "arrival_per_second": 500.0}}
    shown = on_terminal(render_graph(pipeline.layout(), figures, "thumbnails"))
    assert "images  120/s" in shown and "500/s" not in shown


def test_the_last_decision_is_told_with_its_age():
    seen = {
        "policy": "ds2",
        "now": 107.0,
        "decisions": [{"at": 100.0, "kind": "waiting", "reason": "a batch"}],
    }
    assert describe_last_decision(seen) == "ds2, 7 s ago: waiting: a batch"
    assert describe_last_decision({"decisions": []}) is None and describe_last_decision({}) is None
