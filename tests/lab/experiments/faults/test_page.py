"""The page says of every cell what was seen, and the one in the docs has every cell."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from penstock.errors import BadInput
from penstock_lab.experiments.faults.matrix import FAULTS, PARTS, REASONS, list_cells
from penstock_lab.experiments.faults.page import read_rows, write_page
from tests.lab.claims.test_faults import a_row

PAGE = Path(__file__).parents[4] / "docs" / "faults.md"


def find_cells(page: str) -> dict[tuple[str, str], str]:
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {
        (row[0], part): cell
        for row in rows
        if row[0] in FAULTS
        for part, cell in zip(PARTS, row[1:], strict=True)
    }


def test_a_cell_is_a_time_wrong_impossible_or_not_tried():
    wrong = a_row(part="fleet", actions_doubled=1)
    cells = find_cells(write_page([a_row(seconds_to_recover=14.2), wrong]))
    assert cells["journal away", "loop"] == "14"
    assert cells["journal away", "fleet"] == "**wrong**"
    assert cells["journal away", "pipeline"] == "…"
    assert cells["two controllers", "loop"].startswith("cannot (")


def test_a_rehearsal_stands_in_brackets_and_its_cell_is_left_to_try():
    page = write_page([a_row(fault="driver killed", rehearsed=True), a_row()])
    assert find_cells(page)["driver killed", "loop"] == "(0)"
    cells, impossible = len(list(list_cells())), len(REASONS)
    assert f"1 were tried, {impossible} cannot occur, and {cells - impossible - 1} are not tried" in page
    assert "of which 1 were rehearsed" in page


def test_the_page_of_the_docs_has_every_cell_and_every_reason():
    text = PAGE.read_text()
    assert set(find_cells(text)) == {cell.key for cell in list_cells()}
    assert all(reason[1:] in text for reason in REASONS.values())


def test_rows_come_from_a_result_or_from_what_was_kept(tmp_path: Path):
    kept, result = tmp_path / "kept.jsonl", tmp_path / "result.json"
    kept.write_bytes(orjson.dumps(a_row()) + b"\n")
    result.write_bytes(b"cell 1 of 1\n" + orjson.dumps({"results": [a_row()]}))
    assert read_rows(kept) == read_rows(result) == [a_row()]
    kept.write_bytes(b'{"no": "row"}\n')
    with pytest.raises(BadInput, match="no rows"):
        read_rows(kept)
