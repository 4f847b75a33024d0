"""A budget of changes an hour for a whole fleet: what passes, and what is put off."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.cli import perform
from penstock.decide.sage.columns import SIZE
from penstock.fleet.budget import FleetBudget, choose_decisions
from penstock.fleet.decision import DECISION
from penstock.fleet.places import FleetDirectory
from penstock.settings.model import Settings
from tests.commands.command_line import Captured, complaint, last_json

NOW = round(time.time()) - 60.0


def decisions(at: float, *changes: int) -> pa.Table:
    """One decision for each change of the parallelism, of applications named after it."""
    rows = []
    for number, change in enumerate(changes):
        sizes = {f"{one}_{size}": 4.0 for one in ("held", "after") for size in SIZE}
        sizes["after_parallelism"] = 4.0 + change
        row = {"application": f"{change:+d}-{number}", "decision_id": 1, "at": at, "expires_at": at + 600.0}
        rows.append({**row, "rule": "P4", "reason": "x", "parallelism": 4 + change, **sizes})
    return pa.Table.from_pylist(rows, schema=DECISION)


def names(table: pa.Table) -> list[str]:
    return table["application"].to_pylist()


def admit(budget: FleetBudget, directory: FleetDirectory, batch: int, table: pa.Table) -> list[str]:
    kept = budget.admit(batch, table)
    directory.write_decisions(batch, kept)
    return names(kept)


def test_a_policy_gone_wrong_moves_no_more_than_the_budget(tmp_path: Path):
    directory = FleetDirectory(tmp_path)
    budget = FleetBudget(directory, 10)
    moved = [admit(budget, directory, batch, decisions(NOW + batch, *[-3] * 100)) for batch in range(1, 30)]
    assert [len(one) for one in moved] == [10] + [0] * 28
    assert directory.decision_count() == 10
    later = decisions(NOW + 3602.0, *[-3] * 100)
    assert len(admit(budget, directory, 30, later)) == 10, "an hour later there is a new one"


def test_what_grows_comes_first_and_the_order_stays():
    assert names(choose_decisions(decisions(NOW, -1, 2, -1, 3), 3)) == ["-1-0", "+2-1", "+3-3"]
    assert names(choose_decisions(decisions(NOW, -1, 2, -1, 3), 0)) == []
    assert names(choose_decisions(decisions(NOW, -1, 2), -5)) == []


def test_a_batch_that_is_done_again_by_another_controller_passes_the_same(tmp_path: Path):
    directory = FleetDirectory(tmp_path)
    budget = FleetBudget(directory, 5)
    admit(budget, directory, 1, decisions(NOW, 1, 1, 1))
    first = admit(budget, directory, 2, decisions(NOW + 10, 1, -1, 1, 1))
    assert first == ["+1-0", "+1-2"]
    assert admit(budget, directory, 2, decisions(NOW + 10, 1, -1, 1, 1)) == first
    other = FleetBudget(directory, 5)
    assert admit(other, directory, 2, decisions(NOW + 10, 1, -1, 1, 1)) == first
    assert admit(other, directory, 3, decisions(NOW + 20, 1)) == []


def test_a_foreign_file_spends_nothing_and_stops_nothing(tmp_path: Path):
    directory = FleetDirectory(tmp_path)
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "batch-000000000.jsonl").write_bytes(b"nonsense\n")
    assert FleetBudget(directory, 5).admit(1, decisions(NOW, 1)).num_rows == 1


def test_without_a_budget_all_pass_and_the_status_tells_what_is_left_of_one(tmp_path: Path, capsys: Captured):
    directory = FleetDirectory(tmp_path)
    assert FleetBudget(directory).admit(1, decisions(NOW, *[1] * 50)).num_rows == 50
    assert perform(["fleet", "status", str(tmp_path), "--json"]) == 0
    assert last_json(capsys)["budget"] is None
    FleetBudget(directory, 2).admit(1, decisions(NOW, 1, 1, 1))
    assert perform(["fleet", "status", str(tmp_path), "--json"]) == 0
    assert last_json(capsys)["budget"] == {"at": NOW, "per_hour": 2.0, "used": 2.0, "put_off": 1.0}
    directory.budget.write_bytes(b"[]")
    assert perform(["fleet", "status", str(tmp_path)]) == 2
    assert "budget.json" in complaint(capsys)


@pytest.mark.parametrize(("written", "expected"), [("none", None), (7, 7)])
def test_the_setting(written: object, expected: int | None):
    assert Settings(fleet_changes_per_hour=written).membership.changes_per_hour == expected
