"""A fleet searched, sorted and paged: against plain Python, and what foreign rows may do to it."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.fleet.listing import LONGEST_TEXT, NUMBERS, SHOWS, TEXTS, FleetListing, Question, parse_question
from penstock.fleet.places import STATUS, FleetDirectory
from penstock.fleet.remembered import RememberedFleet
from penstock.fleet.status import GIB, summarise_fleet

NOW = 10_000.0
NAMES = st.text(st.sampled_from("aAbBßİ./-_ <é"), min_size=1, max_size=6)
AMOUNTS = st.sampled_from([0.0, 1.0, 2.0, 5.0])


def a_row(application: str = "payments.orders", **changes: Any) -> dict[str, Any]:
    """An application that holds what it needs."""
    row = {
        "application": application, "at": NOW, "parallelism": 4, "needed_parallelism": 4.0,
        "allocated_cores": 8.0, "needed_cores": 8.0, "allocated_bytes": 8 * GIB, "needed_bytes": 8 * GIB,
        "missing_bytes": 0.0, "starved": False, "in_flight": 0,
    }  # fmt: skip
    return row | changes


def a_status(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=STATUS)


ROWS = st.builds(
    a_row,
    NAMES,
    at=st.sampled_from([NOW, NOW - 10.0, NOW - 4000.0]),
    parallelism=st.integers(1, 4),
    needed_parallelism=st.sampled_from([1.0, 3.0, math.nan]),
    allocated_cores=AMOUNTS,
    needed_cores=AMOUNTS,
    allocated_bytes=AMOUNTS,
    missing_bytes=AMOUNTS,
    starved=st.booleans(),
)
DECISIONS = st.fixed_dictionaries(
    {
        "application": NAMES,
        "at": st.sampled_from([1.0, 2.0, 3.0]),
        "rule": st.sampled_from(["P1", "P4"]),
        "reason": st.just("why"),
    }
)
QUESTIONS = st.builds(
    Question,
    search=st.text(st.sampled_from("aAßi.<"), max_size=2),
    show=st.sampled_from(SHOWS),
    sort=st.sampled_from((*TEXTS, *NUMBERS)),
    descending=st.booleans(),
    page=st.integers(1, 4),
    rows=st.integers(1, 5),
)


def describe(row: dict[str, Any], decisions: list[dict[str, Any]]) -> dict[str, Any]:
    """Work out by hand what is shown of one row."""
    lack = row["needed_parallelism"] - row["parallelism"]
    lack = 0.0 if math.isnan(lack) else max(0.0, lack)
    parts = re.split(r"[/.:_ -]", row["application"], maxsplit=1)
    rule = ""
    for one in sorted(decisions, key=lambda one: one["at"]):
        rule = one["rule"] if one["application"] == row["application"] else rule
    return {
        "application": row["application"],
        "team": parts[0] if len(parts) > 1 else "",
        "at": row["at"],
        "parallelism": row["parallelism"],
        "needed_parallelism": row["needed_parallelism"],
        "allocated_cores": row["allocated_cores"],
        "spare_cores": max(0.0, row["allocated_cores"] - row["needed_cores"]),
        "allocated_gib": row["allocated_bytes"] / GIB,
        "spare_gib": max(0.0, row["allocated_bytes"] - row["needed_bytes"]) / GIB,
        "missing_executors": lack,
        "missing_gib": row["missing_bytes"] / GIB,
        "starved": row["starved"],
        "in_flight": row["in_flight"],
        "rule": rule,
        "undersized": lack > 0 or row["missing_bytes"] > 0 or row["starved"],
        "silent": row["at"] < NOW - 3600,
    }


def matches(row: dict[str, Any], question: Question) -> bool:
    shown = {
        "all": True,
        "undersized": row["undersized"] and not row["silent"],
        "spare": not row["silent"] and (row["spare_cores"] > 0 or row["spare_gib"] > 0),
        "decided": bool(row["rule"]),
        "silent": row["silent"],
    }
    return shown[question.show] and question.search.casefold() in row["application"].casefold()


def sort_plainly(rows: list[dict[str, Any]], question: Question) -> list[dict[str, Any]]:
    """Sort with Python's own sort, twice: by name, then by the column; what is not known comes last."""
    rows = sorted(rows, key=lambda row: row["application"].casefold())
    if question.sort == "application":
        # equal names stay in the order that their rows have, one way, and turn it the other
        return rows[::-1] if question.descending else rows
    unknown = [row for row in rows if row[question.sort] == "" or row[question.sort] != row[question.sort]]
    known = [row for row in rows if row not in unknown]
    return sorted(known, key=lambda row: row[question.sort], reverse=question.descending) + unknown


@given(st.lists(ROWS, max_size=8, unique_by=lambda row: row["application"].casefold()),
       st.lists(DECISIONS, max_size=4), QUESTIONS)  # fmt: skip
def test_a_page_is_what_plain_python_finds(
    rows: list[dict[str, Any]], decisions: list[dict[str, Any]], question: Question
):
    described = [describe(row, decisions) for row in rows]
    wanted = sort_plainly([row for row in described if matches(row, question)], question)
    page = FleetListing.of(a_status(*rows), decisions).page(question, NOW)
    assert (page["matching"], page["of"]) == (len(wanted), len(rows))
    assert page["pages"] == max(1, math.ceil(len(wanted) / question.rows))
    at = (min(question.page, page["pages"]) - 1) * question.rows
    shown = wanted[at : at + question.rows]
    assert [row["application"] for row in page["rows"]] == [row["application"] for row in shown]
    for row, expected in zip(page["rows"], shown, strict=True):
        found = {key: row[key] for key in expected}
        unlike = {key for key in expected if found[key] != expected[key]}
        assert unlike <= {"needed_parallelism"}, (found, expected)
        assert not unlike or math.isnan(found["needed_parallelism"]) == math.isnan(
            expected["needed_parallelism"]
        )


@given(st.lists(ROWS, min_size=1, max_size=8))
def test_teams_are_added_up_as_plain_python_does(rows: list[dict[str, Any]]):
    heard = [row for row in (describe(row, []) for row in rows) if not row["silent"]]
    wanted: dict[str, dict[str, float]] = {}
    for row in heard:
        team = wanted.setdefault(row["team"], {"applications": 0, "undersized": 0, "spare_cores": 0.0})
        team["applications"] += 1
        team["undersized"] += row["undersized"]
        team["spare_cores"] += row["spare_cores"]
    found = FleetListing.of(a_status(*rows), []).sum_teams(NOW)
    assert {one["team"]: {key: one[key] for key in wanted[one["team"]]} for one in found["teams"]} == wanted
    spare = [one["spare_gib"] for one in found["teams"]]
    assert spare == sorted(spare, reverse=True), "the most wasteful first"


def test_a_name_of_any_length_is_shown_in_part():
    (row,) = FleetListing.of(a_status(a_row("x" * 100_000)), []).page(Question(), NOW)["rows"]
    assert len(row["application"]) == LONGEST_TEXT and not row["is_whole"]


def test_names_that_stay_are_indexed_once():
    first = FleetListing.of(a_status(a_row("a.b")), [])
    assert FleetListing.of(a_status(a_row("a.b", parallelism=9)), [], first).index is first.index
    assert FleetListing.of(a_status(a_row("a.c")), [], first).index is not first.index


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"sort": "<b>"}, "sort"), ({"show": "x"}, "show"), ({"order": "up"}, "order"),
        ({"page": "0"}, "page"), ({"page": "²"}, "page"), ({"rows": "501"}, "rows"),
        ({"search": "x" * 201}, "search"),
    ],
)  # fmt: skip
def test_a_question_that_is_none_names_its_key(given: dict[str, str], key: str):
    with pytest.raises(BadInput, match=f"^{key}: "):
        parse_question(given)


def test_a_question_is_read_from_an_address():
    asked = {
        "search": " pay ",
        "show": "undersized",
        "sort": "team",
        "order": "asc",
        "page": "3",
        "rows": "20",
    }
    assert parse_question(asked) == Question("pay", "undersized", "team", False, 3, 20)
    assert parse_question({}) == Question()


def test_a_file_is_read_again_when_it_has_changed_and_not_before(tmp_path: Path):
    written, fleet = FleetDirectory(tmp_path), RememberedFleet(tmp_path)
    assert fleet.status() is None
    written.write_status(0, a_status(a_row("a")))
    written.write_status(1, a_status(a_row("b")))
    first = fleet.status()
    assert first is not None and first["application"].to_pylist() == ["a", "b"]
    assert fleet.status() is first
    written.write_status(1, a_status(a_row("c")))
    second = fleet.status()
    assert second is not None and second["application"].to_pylist() == ["a", "c"]
    (tmp_path / "status" / "bucket-00.parquet").unlink()
    third = fleet.status()
    assert third is not None and third["application"].to_pylist() == ["c"]


def test_what_is_remembered_is_what_the_directory_says(tmp_path: Path):
    written, fleet, now = FleetDirectory(tmp_path), RememberedFleet(tmp_path), time.time()
    written.write_status(0, a_status(a_row("a", at=now)))
    for batch in range(2):
        row = {"application": "a", "decision_id": "d", "at": now, "rule": "P1", "reason": f"{batch}", "x": 1}
        written.write_decisions(batch, pa.Table.from_pylist([row]))
        written.write_dead(batch, pa.Table.from_pylist([{"reason": "r", "origin": "o", "record": "x"}]))
        assert summarise_fleet(fleet, now) == summarise_fleet(written, now)
    assert [one["reason"] for one in fleet.decisions()] == ["0", "1"]


def test_a_file_that_is_none_of_the_fleet_is_named(tmp_path: Path):
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "bucket-00.parquet").write_bytes(b"nonsense")
    with pytest.raises(BadInput, match=r"bucket-00\.parquet: not a file of the fleet"):
        RememberedFleet(tmp_path).status()
