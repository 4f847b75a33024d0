from __future__ import annotations

import pytest
from rich.console import Console

from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import BINS, ExpectedEffect
from penstock.journal.records import ActionRecord
from penstock.view.listing import actions_table


@pytest.mark.parametrize(
    ("planned", "words"),
    [({EXECUTORS: 4}, "executors 2 → 4"), ({BINS: 3}, "moves 3 bins")],
)
def test_an_action_says_what_it_changes(planned: dict[str, int], words: str):
    record = ActionRecord(
        7, "app", 1, "ds2", 0.0, (), {EXECUTORS: 2}, {}, planned, {}, "why", (), ExpectedEffect("")
    )
    console = Console(width=200)
    with console.capture() as captured:
        console.print(actions_table([record]))
    assert words in captured.get()
