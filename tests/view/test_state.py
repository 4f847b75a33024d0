"""Where state lies, in the terminal and as a page."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from penstock.view import figures
from penstock.view.state_page import draw_heat_map, measure_bins, render_state_page
from penstock.view.state_terminal import group_by_worker, join_ranges, render_plans, render_state
from tests.view import made_up_state


def shown(what: object, width: int = 80) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(what)
    return console.export_text()


def test_every_bin_has_its_place() -> None:
    told = shown(render_state(made_up_state.state()))
    assert re.search(r"1 +0, 2, 4, 6, 8, 10 *\n", told)
    assert "operator 0: 7; operator 1: 7" in told
    assert "the heaviest; 4 more with --bins" in told
    everything = shown(render_state(made_up_state.state(), every_bin=True))
    assert "more with --bins" not in everything


def test_what_each_worker_holds() -> None:
    query = made_up_state.a_query()
    query["bins"][0]["worker"] = None
    query["bins"][1]["worker"] = "gone"
    held = group_by_worker(query, made_up_state.state()["workers"])
    assert [one["worker"] for one in held] == ["1", "2", "3", "–", "gone"]
    assert held[2]["load_per_slot"] == pytest.approx(0.41 / 2)
    assert held[4]["load_per_slot"] is None
    assert sum(len(one["bins"]) for one in held) == 12


def test_fewer_bins_than_slots_is_said() -> None:
    few = made_up_state.state(queries=[made_up_state.a_query(bins=4)])
    said = "operator 0 of counts has 4 bins: of 6 slots 2 have no state to work on"
    assert said in " ".join(shown(render_state(few)).split())
    assert said in render_state_page(few, "app-1", "")
    assert "have no state to work on" not in render_state_page(made_up_state.state(), "app-1", "")


def test_no_state_and_an_obstacle() -> None:
    empty = made_up_state.state(queries=[], obstacle="state cannot be moved: this is local mode")
    assert "no query holds state yet" in shown(render_state(empty))
    assert "this is local mode" in shown(render_state(empty))
    assert "this is local mode" in render_state_page(empty, "app-1", "")


def test_a_plan_with_more_moves_than_are_shown() -> None:
    plan = made_up_state.a_plan(strategy="batched")
    plan["moves"] = plan["moves"] * 10
    told = shown(render_plans([plan]))
    assert "30 bins, 3.0 MB, batched, 4 batches" in told
    assert "and 6 more; --json has all" in told


def test_an_optimized_plan_tells_how_many_batches_it_takes_at_least() -> None:
    told = shown(render_plans([made_up_state.a_plan(strategy="optimized")]))
    assert "optimized, at least 4 batches" in told


def test_neighbours_are_drawn_together() -> None:
    assert join_ranges([3, 1, 2, 7, 9, 10]) == "1-3, 7, 9-10"
    assert join_ranges([]) == ""


def test_sizes_as_people_read_them() -> None:
    assert [figures.size(one) for one in (0, 999, 1234, 340e6, 2.5e9, 3e12, None)] == [
        "0 B", "999 B", "1.2 kB", "340 MB", "2.5 GB", "3.0 TB", "–",
    ]  # fmt: skip


def test_one_heat_map_for_each_operator_and_a_bin_in_one_row_alone() -> None:
    state = made_up_state.state()
    maps = [trace for trace in draw_heat_map(state).data if trace.type == "heatmap"]
    assert len(maps) == 3
    for column in zip(*maps[0].z, strict=True):
        assert sum(cell is not None for cell in column) == 1
    assert [one["name"] for one in measure_bins(state)] == ["load", "bytes", "rows"]
    assert all(len(one["cells"]) == 3 for one in measure_bins(state))


def test_the_page_needs_no_network_and_takes_names_as_text() -> None:
    state = made_up_state.state()
    state["queries"][0]["name"] = "</script><script>alert(1)</script>"
    written = render_state_page(state, "app-1", "a <b> name")
    assert "a &lt;b&gt; name" in written
    assert "<script>alert(1)" not in written
    own = re.sub(r"<script.*?</script>", "", written, flags=re.DOTALL)
    assert not re.search(r"""(?:src|href)=["']?https?:""", own)
