"""The page of pipelines: the graph with rates, backlog and parallelism, live."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from penstock.runtime.control import ControlServer
from penstock.view.dashboard.pipelines import WIDTHS, describe_pipeline, find_strength
from tests.view.dashboard.served import read_events, served


def a_function(reads: list[str], writes: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "reads": reads, "writes": writes, "parallelism": 3, "least": 1, "most": 8, "pinned": False,
        "arrival_per_second": 120.0, "observed_per_second": 118.0, "written_per_second": 900.0,
        "backlog_records": 4321.0, "busy_ratio": 0.95, "dead_letters": 2, "error": None, "trouble": None,
        "at_batch_seconds": 1.0, **changes,
    }  # fmt: skip


def a_pipeline(**changes: Any) -> dict[str, Any]:
    """Lines are split into words, which are counted; counting has failed."""
    return {
        "pipeline": "words <b>", "policy": "ds2", "running": True, "leads": True, "leader": "me",
        "now": time.time(), "error": None,
        "decisions": [{"at": time.time() - 3, "kind": "scale", "reason": "split needs 3 <i>"}],
        "functions": {
            "split": a_function(["lines"], "words"),
            "count": a_function(["words"], None, error="it failed", arrival_per_second=float("nan")),
        },
        **changes,
    }  # fmt: skip


def test_strengths_follow_the_rates() -> None:
    assert find_strength(None, 100.0) == 0 == find_strength(float("nan"), 100.0)
    assert find_strength(100.0, 100.0) == WIDTHS and find_strength(9.0, 100.0) == WIDTHS - 2
    assert find_strength(1e-9, 100.0) == 1 == find_strength(0.0, 100.0)


def test_arrows_carry_rates_and_boxes_figures() -> None:
    told = describe_pipeline(a_pipeline())
    arrows = {one["title"]: one["strength"] for one in told["drawing"]["arrows"]}
    assert arrows == {"lines → split: 120/s": 4, "words → count: 900/s": 5, "split → words: 900/s": 5}
    texts = [text for box in told["drawing"]["boxes"] for _, text in box["texts"]]
    assert "split ×3" in texts and "backlog 4,321, 2 dead" in texts and "118/s, busy 95%" in texts
    assert told["problems"] == ["count has failed: it failed"]


def test_a_pipeline_that_stands_by_is_shown_without_figures() -> None:
    functions = {"split": {"reads": ["lines"], "writes": None}}
    told = describe_pipeline(a_pipeline(functions=functions, leads=False, leader="another", decisions=[]))
    assert told["note"] == "ds2 · stands by; another leads" and told["rows"][0]["instances"] == "–"


def test_the_page_is_live_and_names_are_text(sockets: Path, client: httpx.Client) -> None:
    assert "No pipeline runs" in client.get("/pipelines").text
    status = a_pipeline()

    def answer(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"status": status}

    server = ControlServer(sockets / "pipelines", "words", answer)
    try:
        with served(sockets) as other:
            page = other.get("/pipelines").text
            assert "words &lt;b&gt;" in page and "words <b>" not in page and "needs 3 &lt;i&gt;" in page
            assert "<style" not in page and " style=" not in page, "the policy forbids both"
            events = read_events(other, "/events/pipelines")
            next(events)
            scraped = (
                'penstock_function_instances{application="words <b>",function="split",name="words <b>"} 3.0'
            )
            assert scraped in other.get("/metrics").text
            status = a_pipeline(functions={"split": a_function(["lines"], "words", backlog_records=77.0)})
            assert (
                "backlog 77" in next(one for one in events if "backlog 77" in one["pipelines"])["pipelines"]
            )
    finally:
        server.close()
