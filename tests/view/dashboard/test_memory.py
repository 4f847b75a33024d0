"""The page of memory and cores: figures against limits, what is recommended, and why it is not done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from penstock.view.dashboard.memory import describe_memory
from tests.view.dashboard.served import FakeApplication, served

GIB = 1024**3


def a_sizing(**changes: Any) -> dict[str, Any]:
    """Two executors, the second with a full heap; more heap is recommended."""
    executor = {
        "executor": "1", "host": "10.0.0.1", "slots": 2, "active_tasks": 1, "heap_peak_bytes": 5 * GIB,
        "cached_bytes": 0, "gc_share": 0.02, "heap_used_bytes": 3 * GIB, "heap_committed_bytes": 5 * GIB,
        "resident_bytes": 5.5 * GIB, "cpu_cores": 1.2, "spilled_bytes": 0.0,
    }  # fmt: skip
    full = {**executor, "executor": "2", "heap_used_bytes": 5.7 * GIB, "gc_share": 0.24, "spilled_bytes": 3e9}
    return {
        "at": 1_763_251_200.0,
        "executors": [executor, full],
        "limits": {
            "heap_bytes": 6.0 * GIB, "overhead_bytes": 1.0 * GIB, "cores": 2, "task_cpus": 1,
            "driver_heap_bytes": 2.0 * GIB,
        },
        "driver": {"heap_used_bytes": 0.4 * GIB},
        "losses": [{"executor": "7", "host": "10.0.0.<2>", "at": 1_763_251_100.0, "out_of_heap": True}],
        "recommended": {
            "at": 1_763_251_200.0, "settings": {"spark.executor.memory": "8g"},
            "before": {"spark.executor.memory": "6g"}, "reason": "24 % of the time is garbage collection",
            "expected": "less than 10 %", "accepted": False, "guardrail": "recommend-only",
            "verdict": "spark.executor.memory=8g is recommended and needs a restart",
        },
        **changes,
    }  # fmt: skip


class SizedApplication(FakeApplication):
    """Answers what executors use."""

    sizing = a_sizing()

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"sizing": self.sizing} if command == "sizing" else super()._answer(command, request)


def test_a_full_heap_and_long_collections_stand_out() -> None:
    calm, full = describe_memory(a_sizing())["executors"]
    assert calm["heap"]["percent"] == 50.0 and calm["heap"]["kind"] == "cool"
    assert full["heap"] == {"text": "6.1 GB", "of": "of 6.4 GB, 95 %", "percent": 95.0, "kind": "bad"}
    assert (calm["gc"]["kind"], full["gc"]["kind"]) == ("cool", "bad")
    # resident against heap and what is beside it: 5.5 of 7 GiB
    assert calm["resident"]["percent"] == 78.6
    assert (calm["cpu"]["text"], calm["cpu"]["percent"]) == ("1.2", 60.0)
    assert full["spilled"] == "3.0 GB" and calm["spilled"] == ""


def test_what_is_not_measured_is_said_and_has_no_bar() -> None:
    bare = {
        **a_sizing()["executors"][0],
        **dict.fromkeys(
            ("heap_used_bytes", "heap_committed_bytes", "resident_bytes", "cpu_cores", "gc_share")
        ),
    }
    told = describe_memory(a_sizing(executors=[bare], limits=None, driver=None, recommended=None))
    (one,) = told["executors"]
    assert "policy sage" in told["unknown"] and told["recommended"] is None
    assert (
        one["heap"]["text"] == "5.4 GB"
        and one["heap"]["percent"] is None
        and one["heap_note"] == "at its peak"
    )
    assert one["cpu"]["text"] == "–"


def test_the_page_says_what_is_recommended_and_why_it_is_not_done(sockets: Path) -> None:
    application = SizedApplication(sockets, "app-sized", name="sized")
    try:
        with served(sockets) as client:
            page = client.get("/applications/app-sized/memory").text
    finally:
        application.close()
    assert "spark.executor.memory" in page and "recommend-only" in page and "needs a restart" in page
    assert "10.0.0.&lt;2&gt;" in page and "10.0.0.<2>" not in page


def test_an_application_of_an_earlier_version_says_that_it_cannot(client: httpx.Client) -> None:
    page = client.get("/applications/app-1/memory")
    assert page.status_code == 200 and "unknown command" in page.text
