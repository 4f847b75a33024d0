"""What `penstock actions` prints: a table where there is room, blocks where there is not, and nothing cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console, RenderableType

from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.policy import BINS, ExpectedEffect
from penstock.journal.records import ActionRecord
from penstock.view.decisions_terminal import render_actions, render_decisions, render_overrides
from penstock.view.terminal import LEAST_LAST, Entries

REASON = "P1 (heap scale-up): heap use never fell below 97% of the heap, the bound is 85%; by " + "x" * 90
SCALED = ActionRecord(
    7, "app", 1, "ds2", 0.0, (), {EXECUTORS: 2}, {}, {EXECUTORS: 4}, {}, "why", (), ExpectedEffect("")
)
RESIZED = dataclasses.replace(
    SCALED,
    action_id=12,
    application="app-20261116013408-0000",
    planned={},
    reason=REASON,
    status=Status.DONE,
    seconds=34.2,
    settings={
        "spark.executor.memory": ("2048m", "3072m"),
        "spark.executor.memoryOverhead": ("", "600m"),
        "spark.task.cpus": ("1", "2"),
    },
)
DECIDED: dict[str, Any] = {
    "last_at": 0.0,
    "application": "app-20261116013408-0000",
    "policy": "sage",
    "answer": {"settings": {"spark.executor.memory": "3072m"}, "before": {}, "reason": REASON},
    "verdict": {"kind": "rejected", "guardrail": "recommend-only"},
}
SAID: dict[str, Any] = {"at": 0.0, "by": "ops@" + "example" * 12, "clear": True, "veto": ["P3"]}


def printed(shown: RenderableType, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(shown)
    return captured.get().splitlines()


def letters(lines: Sequence[str]) -> str:
    return "".join("".join(lines).split())


@pytest.mark.parametrize(
    ("planned", "words"),
    [({EXECUTORS: 4}, "executors 2 → 4"), ({BINS: 3}, "moves 3 bins")],
)
def test_an_action_says_what_it_changes(planned: dict[str, int], words: str):
    record = dataclasses.replace(SCALED, planned=planned)
    assert words in "\n".join(printed(render_actions([record]), 200))


@pytest.mark.parametrize("width", [60, 80, 100, 160, 220])
def test_nothing_of_an_action_is_lost_at_any_width(width: int):
    lines = printed(render_actions([SCALED, RESIZED]), width)
    assert max(map(len, lines)) <= width and "…" not in "".join(lines)
    values = ["executor.memory 2048m → 3072m", "executor.memoryOverhead unset → 600m", "task.cpus 1 → 2"]
    for told in [*values, "executors 2 → 4", "done in 34.2 s", "app-20261116013408-0000", "under way"]:
        assert any(told in line for line in lines), told
    if width <= 100:
        assert letters([REASON]) in letters(lines), "in a block a cell has its lines for itself"


@pytest.mark.parametrize("width", [80, 100])
def test_nor_of_a_decision_or_an_override(width: int):
    word = {**SAID, "pin": ["heap=2g", "cpu=2"], "force": "P6"}
    decided, overridden = render_decisions([DECIDED]), render_overrides({"words": {"log": [word]}})
    lines = printed(decided, width)
    assert letters([REASON]) in letters(lines) and "recommend-only" in "".join(lines)
    assert any("executor.memory unset → 3072m" in line for line in lines)
    lines = printed(overridden, width)
    assert letters([SAID["by"]]) in letters(lines)
    said = "forget what was said before; pin heap=2g, cpu=2; veto P3; force P6"
    assert letters([said]) in letters(lines)


def test_a_table_is_made_where_it_fits_and_blocks_where_it_does_not():
    entries = render_actions([RESIZED])
    assert isinstance(entries, Entries)
    at_least = entries.table_width()
    assert "action" in printed(entries, at_least)[0]
    assert printed(entries, at_least - 1)[0].split()[0] == "12"
    short = render_actions([SCALED])
    assert isinstance(short, Entries) and short.table_width() < 80 < at_least and LEAST_LAST < 80


def test_where_there_is_nothing_that_is_said():
    for shown, words in (
        (render_actions([]), "no actions"),
        (render_decisions([]), "no decisions"),
        (render_overrides({}), "nothing is overridden"),
    ):
        assert printed(shown, 80) == [words]
