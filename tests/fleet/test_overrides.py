"""What operators say of a fleet: kept with its time, heeded while its file is broken, named in reasons."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from penstock.decide.sage_metrics import Overrides, Parameter, Rule
from penstock.errors import BadInput
from penstock.fleet.overrides import LOG, keep_overrides, overrides_in_effect, read_overrides
from penstock.fleet.packing import decode, pack
from penstock.fleet.places import FleetDirectory
from penstock.fleet.records import read_lines
from penstock.fleet.results import decisions_of
from penstock.fleet.round import FleetSettings, play
from penstock.fleet.state import empty_state
from penstock.fleet.status import fleet_status
from penstock.fleet.status_page import page
from tests.fleet.agents import a_record

PINNED = {"words": {"by": "ops", "pin": ["heap"]}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "overrides.json"
    path.write_bytes(orjson.dumps(PINNED))
    keep_overrides(path, 10.0)
    return path


def versions(path: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in path.with_name(LOG).read_bytes().splitlines()]


@pytest.mark.parametrize("broken", [b'{"words": {"pin"', b"[]", b'{"words": {"pin": ["hip"]}}', b""])
def test_a_file_that_is_being_edited_stops_nothing_and_forgets_nothing(file: Path, broken: bytes):
    file.write_bytes(broken)
    keep_overrides(file, 20.0)
    said, problem = overrides_in_effect(file)
    assert said["words"][0].pinned == {Parameter.HEAP} and str(file) in problem
    assert len(versions(file)) == 1
    with pytest.raises(BadInput, match=r"overrides\.json"):
        read_overrides(file)


def test_each_version_is_kept_once_with_its_time(file: Path):
    keep_overrides(file, 20.0)
    file.write_bytes(orjson.dumps({"words": {"by": "night shift", "veto": ["P3"]}}))
    keep_overrides(file, 30.0)
    assert overrides_in_effect(file)[0]["words"][0].vetoed == {Rule.CPU_UP}
    file.unlink()
    keep_overrides(file, 40.0)
    assert overrides_in_effect(file) == ({}, ""), "no file says nothing"
    kept = versions(file)
    assert [one["at"] for one in kept] == [10.0, 30.0, 40.0]
    assert kept[0]["said"] == PINNED and kept[2]["said"] == {}


def test_a_line_that_a_crash_cut_off_is_passed_over(file: Path):
    with file.with_name(LOG).open("ab") as log:
        log.write(b'{"at": 20.0, "sa')
    file.write_bytes(b"{")
    assert overrides_in_effect(file)[0]["words"][0].pinned == {Parameter.HEAP}
    file.write_bytes(orjson.dumps({"words": {"veto": ["P3"]}}))
    keep_overrides(file, 30.0)
    file.write_bytes(b"{")
    assert overrides_in_effect(file)[0]["words"][0].vetoed == {Rule.CPU_UP}, "nor does it spoil the next"


def test_without_any_version_a_broken_file_says_nothing(tmp_path: Path):
    (tmp_path / "overrides.json").write_bytes(b"{")
    said, problem = overrides_in_effect(tmp_path / "overrides.json")
    assert said == {} and problem
    assert overrides_in_effect(None) == ({}, "")


def test_the_status_says_that_the_file_is_broken(file: Path):
    directory = FleetDirectory(file.parent)
    status = fleet_status(directory, 100.0)
    assert (status["overridden_applications"], status["overrides_problem"]) == (1, "")
    file.write_bytes(b"<{")
    status = fleet_status(directory, 100.0)
    assert status["overridden_applications"] == 1 and "overrides.json" in status["overrides_problem"]
    assert "The last readable overrides count" in page(status)


def test_a_forced_decision_names_who_forced_it():
    said = {"words": (Overrides(forced=Rule.CPU_UP, by="night shift"), 7)}
    read = read_lines([orjson.dumps(a_record("words"))], ["agent"])
    ((_, payload),) = pack(read, said)
    result = play(empty_state(), decode([payload]), FleetSettings())
    (row,) = decisions_of(result, FleetSettings()).to_pylist()
    assert row["rule"] == "P3" and row["reason"].endswith("forced by night shift")
