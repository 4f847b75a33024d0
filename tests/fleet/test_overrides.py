"""What operators say of a fleet: in its journal, heeded while that is away, named in reasons."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.cli import perform
from penstock.decide.sage.metrics import Overrides, Parameter, Rule
from penstock.decide.sage.overrides import Said
from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadInput
from penstock.fleet.overrides import FleetOverrides, order_of, read_snapshot
from penstock.fleet.places import FleetDirectory
from penstock.fleet.records import decode, pack, read_lines
from penstock.fleet.round import play_round, tabulate_decisions
from penstock.fleet.state import empty_state
from penstock.fleet.status import summarise_fleet
from penstock.journal.store import open_journal
from penstock.view.fleet import render_fleet_page
from tests.fleet.agents import a_record

PINNED = {"pin": ["heap"], "veto": [], "force": None, "by": "ops"}


def say(directory: FleetDirectory, application: str, said: dict[str, Any]) -> None:
    with closing(open_journal(directory.journal)) as journal:
        journal.remember(1.0, application, "overrides", "said", said)


def overrides_of(directory: FleetDirectory) -> FleetOverrides:
    return FleetOverrides(directory.journal, directory.overrides)


@pytest.fixture
def directory(tmp_path: Path) -> FleetDirectory:
    place = FleetDirectory(tmp_path)
    say(place, "words", PINNED)
    overrides_of(place).refresh()
    return place


def test_what_operators_say_with_the_command_counts_in_the_next_round(tmp_path: Path):
    place = FleetDirectory(tmp_path)
    overrides_of(place).refresh()
    assert read_snapshot(place.overrides) == ({}, ""), "nobody has said anything"
    words = ["override", "words", "--journal", str(place.journal)]
    assert perform([*words, "--pin", "heap", "--pin", "driver-heap", "--veto", "P3", "--force", "P6"]) == 0
    overrides_of(place).refresh()
    orders, problem = read_snapshot(place.overrides)
    pins = sum(1 << int(one) for one in (Parameter.HEAP, Parameter.DRIVER_HEAP))
    order = orders["words"]
    assert (order.pinned, order.vetoed, order.forced) == (pins, 1 << int(Rule.CPU_UP), int(Rule.HEAP_DOWN))
    assert order.force_id > 0 and order.by and problem == ""
    assert perform([*words, "--force", "P6"]) == 0
    overrides_of(place).refresh()
    assert read_snapshot(place.overrides)[0]["words"].force_id != order.force_id, "it is another force"
    assert perform([*words, "--clear"]) == 0
    overrides_of(place).refresh()
    assert read_snapshot(place.overrides)[0]["words"][:4] == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({**PINNED, "pin": ["size"]}, "pin: unknown parameter 'size'"),
        ({**PINNED, "pin": ["heap=2g"]}, "sets no value"),
        ({**PINNED, "veto": ["P9"]}, "unknown rule 'P9'"),
        ({**PINNED, "veto": ["P" + "9" * 5_000]}, "unknown rule"),
        ({**PINNED, "force": "P1"}, "a rule and an id"),
        ({**PINNED, "by": "ops\nall is well"}, "by"),
        ({**PINNED, "by": "x" * 5_000}, "by"),
    ],
)
def test_bad_words_about_one_application_are_named_and_cost_no_other(
    directory: FleetDirectory, said: dict[str, Any], problem: str
):
    say(directory, "bad", said)
    overrides_of(directory).refresh()
    orders, told = read_snapshot(directory.overrides)
    assert set(orders) == {"words"} and "overrides of bad" in told and problem in told
    status = summarise_fleet(directory, 100.0)
    assert status["overridden_applications"] == 1 and problem in status["overrides_problem"]


def test_while_the_journal_is_away_what_was_said_goes_on_to_count(directory: FleetDirectory):
    directory.journal.write_bytes(b"no journal")
    overrides_of(directory).refresh()
    orders, problem = read_snapshot(directory.overrides)
    assert orders["words"].pinned == 1 << int(Parameter.HEAP) and "journal.db" in problem
    status = summarise_fleet(directory, 100.0)
    page = render_fleet_page(status)
    assert "Not all that operators said counts" in page and "what was said before goes on to count" in page
    directory.journal.unlink()
    overrides_of(directory).refresh()
    assert read_snapshot(directory.overrides) == ({}, ""), "no journal says nothing"


@pytest.mark.parametrize(
    "change", [{"pinned": "x"}, {"vetoed": None}, {"forced": [1]}, {"force_id": 2**63}, {"by": 7}]
)
def test_an_order_of_other_types_is_no_snapshot(directory: FleetDirectory, change: dict[str, Any]):
    """Tasks put orders into columns, and would end the whole job."""
    order = {"pinned": 0, "vetoed": 0, "forced": 0, "force_id": 0, "by": "", **change}
    directory.overrides.write_bytes(orjson.dumps({"problem": "", "orders": {"words": order}}))
    with pytest.raises(BadInput, match=r"overrides\.json: not a snapshot"):
        read_snapshot(directory.overrides)


@pytest.mark.parametrize("spoilt", [b"{", b"[]", b'{"orders": {"a": {"x": 1}}, "problem": ""}'])
def test_a_spoilt_snapshot_is_named_and_made_anew(directory: FleetDirectory, spoilt: bytes):
    directory.overrides.write_bytes(spoilt)
    with pytest.raises(BadInput, match=r"overrides\.json: not a snapshot"):
        read_snapshot(directory.overrides)
    overrides_of(directory).refresh()
    assert set(read_snapshot(directory.overrides)[0]) == {"words"}
    os.truncate(directory.overrides, 3 << 30)
    with pytest.raises(BadInput, match=r"3,072\.0 MiB"):
        read_snapshot(directory.overrides)


def test_a_forced_decision_names_who_forced_it():
    said = {"words": order_of(Said(Overrides(forced=Rule.CPU_UP, by="night shift"), "7"), "words")}
    read = read_lines([orjson.dumps(a_record("words"))], ["agent"])
    ((_, payload),) = pack(read, said)
    result = play_round(empty_state(), decode([payload]), SageSettings())
    (row,) = tabulate_decisions(result, SageSettings()).to_pylist()
    assert row["rule"] == "P3" and row["reason"].endswith("forced by night shift")
