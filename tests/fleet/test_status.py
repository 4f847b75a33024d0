"""How a fleet is shown, what operators say, and what gets into the journal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from penstock.cli import perform
from penstock.decide.sage.metrics import Parameter, Rule
from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadInput
from penstock.fleet.action_log import ActionLog
from penstock.fleet.overrides import Order
from penstock.fleet.places import STATUS, FleetDirectory, FleetTopic, parse_place
from penstock.fleet.records import BUCKETS, DEAD_BUCKET, decode, find_bucket, pack, read_lines
from penstock.fleet.reporting import DirectoryTransport
from penstock.fleet.round import ORDERS, play_round, tabulate_decisions
from penstock.fleet.state import empty_state
from penstock.fleet.status import summarise_fleet, tabulate_status
from penstock.journal.store import Journal, open_journal
from penstock.view.fleet import render_fleet, render_fleet_page
from tests.fleet.agents import GIB, a_record, a_table

SETTINGS = SageSettings()
START = time.time() - 100.0
"""Commands ask the clock, and what is an hour old is told as silent."""


@pytest.fixture
def directory(tmp_path: Path) -> FleetDirectory:
    """One application that needs heap, one that needs executors and one with some to spare."""
    place, state = FleetDirectory(tmp_path / "fleet"), empty_state()
    for number in range(1, 6):
        table = a_table(
            a_record("hungry", end=START + 10.0 * number, heap_used_bytes=5.8 * GIB),
            a_record("short", end=START + 10.0 * number, needed_parallelism=7, backlog_records=1e5 * number),
            a_record("idle", end=START + 10.0 * number, held_parallelism=10),
        )
        result = play_round(state, table, SETTINGS)
        state = result.state
        place.write_decisions(number, tabulate_decisions(result, SETTINGS))
    place.write_status(0, tabulate_status(state, SETTINGS))
    place.write_dead(1, read_lines([b"nonsense"], ["file"]).dead)
    return place


def shown(status: dict[str, Any]) -> list[str]:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render_fleet(status))
    return captured.get().splitlines()


def test_the_status_names_waste_and_need(directory: FleetDirectory):
    status = summarise_fleet(directory, now=START + 100.0)
    assert (status["applications"], status["undersized_applications"]) == (3, 2)
    short, hungry = status["undersized"]
    known = {"application": "short", "parallelism": 4, "needed_parallelism": 7.0, "missing_gib": 0.0}
    assert short == {**known, "starved": False}, "executors before memory"
    assert (hungry["application"], hungry["needed_parallelism"]) == ("hungry", 4.0)
    assert hungry["missing_gib"] == pytest.approx(4 * (5.8 / 0.85 - 6), rel=1e-4) == status["missing_gib"]
    assert (status["allocated_cores"], status["wasted_cores"]) == (72.0, 24.0)
    assert status["most_wasteful"][0]["application"] == "idle"
    assert status["decided_last_hour"] == {"P1": 1, "P4": 1}
    assert (status["in_flight"], status["dead_letters"]) == (2, 1)
    later = summarise_fleet(directory, now=START + 4000.0)
    assert later["decisions"] == [], "more than an hour ago"
    assert (later["applications"], later["silent_applications"]) == (0, 3), "what ended holds nothing"
    assert "3 of which nothing was heard" in "".join(shown(later))


def test_windows_that_wait_for_a_controller_are_told(directory: FleetDirectory):
    """It may hang, or nobody has started it: others would see no more than figures that do not change."""
    windows = directory.root / "windows"
    windows.mkdir(exist_ok=True)
    for path in (directory.root / "status").iterdir():
        os.utime(path, (1000.0, 1000.0))
    for came, waits in ((990.0, False), (1050.0, False), (1070.0, True)):
        os.utime(windows, (came, came))
        status = summarise_fleet(directory, now=START)
        assert (status["last_round_at"], status["windows_wait"]) == (1000.0, waits)
        assert ("is its controller at work?" in " ".join("".join(shown(status)).split())) == waits
        assert ("is its controller at work?" in render_fleet_page(status)) == waits


def test_it_is_shown_as_table_json_and_page(
    directory: FleetDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "fleet.html"
    assert perform(["fleet", "status", str(directory.root), "--html", str(page), "--json"]) == 0
    told = orjson.loads(capsys.readouterr().out)
    assert told["applications"] == 3
    assert "short" in page.read_text() and "60 of 72" in page.read_text()
    assert "http" not in page.read_text(), "a page needs no network"
    assert perform(["fleet", "status", str(directory.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["short", "4", "7", "0.0"] for line in lines)
    assert any(line.split()[:2] == ["idle", "24.0"] for line in lines), "who has most to spare"


def test_names_in_a_page_are_text(tmp_path: Path):
    place = FleetDirectory(tmp_path)
    state = play_round(empty_state(), a_table(a_record("<b>", needed_parallelism=9)), SETTINGS).state
    place.write_status(0, tabulate_status(state, SETTINGS))
    status = summarise_fleet(place, 10.0)
    text = render_fleet_page(status)
    assert "&lt;b&gt;" in text and "<b>" not in text


def test_names_in_a_table_are_text_and_nothing_is_cut(tmp_path: Path):
    place, name = FleetDirectory(tmp_path), "[/red]" + "x" * 100
    state = play_round(empty_state(), a_table(a_record(name, needed_parallelism=9)), SETTINGS).state
    place.write_status(0, tabulate_status(state, SETTINGS))
    assert name in "".join("".join(shown(summarise_fleet(place, 10.0))).split())


def test_use_that_rises_to_the_brim_between_two_collections_is_no_shortage():
    state = empty_state()
    for number, used in enumerate((5.9, 5.9, 2.0, 5.9, 5.9), start=1):
        record = a_record("a", end=10.0 * number, heap_used_bytes=used * GIB)
        state = play_round(state, a_table(record), SETTINGS).state
    assert tabulate_status(state, SETTINGS)["missing_bytes"].to_pylist() == [0.0]


def test_memory_beside_the_heap_can_be_missing_too(tmp_path: Path):
    state = play_round(empty_state(), a_table(a_record("a", memory_used_bytes=6.9 * GIB)), SETTINGS).state
    (missing,) = tabulate_status(state, SETTINGS)["missing_bytes"].to_pylist()
    assert missing == pytest.approx(4 * (1.0 / 0.8 - 1.0) * GIB, rel=1e-4)


def test_who_never_has_a_core_to_spare_is_undersized_too(tmp_path: Path):
    place, state = FleetDirectory(tmp_path), empty_state()
    for number, least in ((1, 5.0), (2, 4.9), (3, 5.0), (4, 4.9)):
        busy = a_record("busy", end=10.0 * number, cpu_used_cores=least)
        calm = a_record("calm", end=10.0 * number, cpu_used_cores=5.0 if number < 4 else 4.0)
        state = play_round(state, a_table(busy, calm), SETTINGS).state
    place.write_status(0, tabulate_status(state, SETTINGS))
    status = summarise_fleet(place, 100.0)
    assert [(row["application"], row["starved"]) for row in status["undersized"]] == [("busy", True)]
    assert any(line.split()[-2:] == ["all", "used"] for line in shown(status))


def test_who_has_cores_to_spare_and_no_memory_is_named(tmp_path: Path):
    place = FleetDirectory(tmp_path)
    full = {"heap_committed_bytes": 6 * GIB, "memory_used_bytes": 6.8 * GIB}
    table = a_table(a_record("idle", held_cores=12, held_task_cpus=3, **full), a_record("right", **full))
    place.write_status(0, tabulate_status(play_round(empty_state(), table, SETTINGS).state, SETTINGS))
    status = summarise_fleet(place, 100.0)
    assert status["most_wasteful"] == [{"application": "idle", "spare_cores": 32.0, "spare_gib": 0.0}]
    assert (status["wasted_cores"], status["wasted_gib"]) == (32.0, 0.0)


def test_a_status_of_an_earlier_version_is_read(tmp_path: Path):
    place = FleetDirectory(tmp_path)
    state = play_round(empty_state(), a_table(a_record("a", needed_parallelism=9)), SETTINGS).state
    old = tabulate_status(state, SETTINGS).drop_columns(["missing_bytes", "starved"])
    place.write_status(0, old)
    assert summarise_fleet(place, 10.0)["undersized_applications"] == 1
    place.write_status(1, tabulate_status(state, SETTINGS))
    assert summarise_fleet(place, 10.0)["undersized_applications"] == 2


def test_a_need_that_is_not_known_is_no_number_on_the_page(tmp_path: Path):
    place, state = FleetDirectory(tmp_path), empty_state()
    unknown = {"needed_parallelism": None, "heap_used_bytes": 5.8 * GIB}
    for number in range(1, 5):
        state = play_round(state, a_table(a_record("a", end=10.0 * number, **unknown)), SETTINGS).state
    place.write_status(0, tabulate_status(state, SETTINGS))
    status = summarise_fleet(place, 100.0)
    assert [row["application"] for row in status["undersized"]] == ["a"]
    text = render_fleet_page(status)
    assert ">nan<" not in text and ">–<" in text


def test_old_decisions_and_what_is_none_are_not_opened(directory: FleetDirectory):
    kept = directory.root / "decisions"
    (kept / "batch-notes.jsonl").write_text("mine")
    old = kept / "batch-000000000.jsonl"
    old.write_text("spoilt")
    with pytest.raises(BadInput, match="batch-000000000"):
        summarise_fleet(directory, START + 100.0)
    os.utime(old, (START - 8000.0, START - 8000.0))
    assert summarise_fleet(directory, START + 100.0)["decided_last_hour"] == {"P1": 1, "P4": 1}


def test_decisions_are_counted_without_reading_them_and_beside_a_spoilt_file(directory: FleetDirectory):
    """All that `fleet run` tells at its end, which must not fail when the work is done."""
    assert directory.decision_count() == len(directory.decisions()) == 2
    (directory.root / "decisions" / "batch-000000099.jsonl").write_bytes(b"")
    assert directory.decision_count() == 2


def test_an_empty_directory_is_an_empty_fleet(tmp_path: Path):
    assert summarise_fleet(FleetDirectory(tmp_path), 0.0)["applications"] == 0
    assert perform(["fleet", "status", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "/no/such/place"],
        ["run", "/no/such/place", "--windows", "http://x"],
        ["run", ".", "--interval", "soon"],
        ["run", ".", "--windows", "/no/such/place"],
        ["run", "/dev/null/fleet"],
        ["run", ".", "--decisions", "/no/topic"],
        ["run", ".", "--journal", "redis://here"],
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert perform(["fleet", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("penstock: error:") and said.count("\n") == 1


def test_places():
    assert parse_place("kafka://a:9092,b:9092/windows") == FleetTopic("a:9092,b:9092", "windows")
    assert parse_place("some/dir") == Path("some/dir")
    with pytest.raises(BadInput, match="kafka://HOST"):
        parse_place("kafka://nowhere")


def test_windows_are_packed_by_application_with_orders():
    names = [f"app-{number}" for number in range(100)]
    read = read_lines([orjson.dumps(a_record(name)) for name in names] + [b"bad"], ["f"] * 101)
    overrides = {"app-7": Order(1 << int(Parameter.HEAP), 0, int(Rule.CPU_UP), 5, "ops")}
    packed = dict(pack(read, overrides))
    assert set(packed) <= {DEAD_BUCKET, *range(BUCKETS)}
    assert decode([packed.pop(DEAD_BUCKET)]).num_rows == 1
    tables = {bucket: decode([payload]) for bucket, payload in packed.items()}
    assert sum(table.num_rows for table in tables.values()) == 100
    assert all(
        find_bucket(name) == b for b, table in tables.items() for name in table["application"].to_pylist()
    )
    seven = next(row for row in tables[find_bucket("app-7")].to_pylist() if row["application"] == "app-7")
    assert [seven[name] for name in ORDERS] == [2, 0, 3, 5]


def test_decisions_get_into_the_journal_once_and_in_order(directory: FleetDirectory, journal: Journal):
    assert ActionLog(directory, journal).catch_up()
    assert ActionLog(directory, journal).catch_up()
    records = {record.application: record for record in journal.decisions()}
    assert (records["hungry"].answer["kind"], records["hungry"].count) == ("resize", 1)
    assert records["hungry"].answer["settings"] == {"spark.executor.memory": "9216m"}
    assert records["hungry"].answer["before"] == {"spark.executor.memory": "6144m"}
    assert records["hungry"].answer["seen"] == {"heap-used": pytest.approx(5.8 / 6)}
    assert records["short"].answer["parallelism"] == {"executors": 7}
    assert {record.kind for record in records.values()} == {"waiting"}, "the agent's guardrails will judge"


def test_a_job_that_begins_anew_is_heard_of(directory: FleetDirectory, tmp_path: Path):
    """Somebody has removed the checkpoint: batches are numbered from 0 on again."""
    assert perform(["fleet", "run", str(directory.root)]) == 2
    with pytest.raises(BadInput, match="move them away"):
        directory.check()
    journal, agent = open_journal(tmp_path / "journal.db"), DirectoryTransport(directory.root)
    ActionLog(directory, journal).catch_up()
    assert len(agent.decisions("hungry")) == 1
    (_, path), *others = directory.decision_files()
    for _, other in others:
        other.unlink()
    path.rename(path.with_name("batch-000000000.jsonl"))
    ActionLog(directory, journal).catch_up()
    assert sum(one.count for one in journal.decisions("hungry")) == 2
    assert len(agent.decisions("hungry")) == 1 and agent.decisions("hungry") == []
    directory.checkpoint.mkdir()
    directory.check()


def test_a_spoilt_file_keeps_no_other_decision_out_of_the_journal(
    directory: FleetDirectory, journal: Journal, caplog: pytest.LogCaptureFixture
):
    (directory.root / "decisions" / "batch-000000003.jsonl").write_bytes(b"\xff spoilt")
    assert ActionLog(directory, journal).catch_up()
    assert "batch-000000003" in caplog.text
    assert [one.application for one in journal.decisions()] == ["hungry", "short"]
    caplog.clear()
    assert ActionLog(directory, journal).catch_up() and not caplog.text, "said once"


def test_a_journal_that_is_away_is_caught_up_with_later(directory: FleetDirectory, tmp_path: Path):
    place = tmp_path / "away"
    place.mkdir()
    from penstock.journal.store import journal_at

    journal = journal_at(place)
    assert not ActionLog(directory, journal).catch_up(), "a directory is no journal"
    place.rmdir()
    assert ActionLog(directory, journal).catch_up()
    assert len(journal.decisions()) == 2


def test_a_status_is_read_without_what_only_pandas_needs(tmp_path: Path):
    FleetDirectory(tmp_path).write_status(0, STATUS.empty_table())
    words = "import sys; from pathlib import Path; from penstock.fleet.places import FleetDirectory"
    words += f"; print(FleetDirectory(Path({str(tmp_path)!r})).status().num_rows, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]
