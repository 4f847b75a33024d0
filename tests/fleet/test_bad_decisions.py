"""One bad decision row costs no more than itself: it neither deafens nor pauses an application."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from penstock.decide.policy import Hold, Scale
from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadInput
from penstock.fleet.action_log import ActionLog
from penstock.fleet.decision import FleetDecision
from penstock.fleet.kafka import read_message
from penstock.fleet.keys import FleetKey
from penstock.fleet.places import FleetDirectory
from penstock.fleet.reporting import DirectoryTransport
from penstock.fleet.round import play_round, tabulate_decisions
from penstock.fleet.state import empty_state
from penstock.journal.store import Journal
from tests.fakes import a_window
from tests.fleet.agents import GIB, a_record, a_table
from tests.fleet.test_agent import Post, an_agent

NOW = 1_000_000.0
NESTED = b"[" * 1000 + b"]" * 1000
"""JSON as deep as it can be read, which is deeper than Python writes it."""


def a_row(at: float = NOW, **changes: Any) -> dict[str, Any]:
    row = {"application": "words", "decision_id": round(at * 1000), "at": at, "expires_at": at + 600.0}
    return {**row, "reason": "P4: backlog", "parallelism": 4, "settings": None, **changes}


def write(root: Path, batch: int, *rows: Mapping[str, Any]) -> Path:
    path = root / "decisions" / f"batch-{batch:09d}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def test_a_good_row_is_a_decision():
    assert FleetDecision.from_row(a_row(), NOW) == FleetDecision(
        1_000_000_000, NOW + 600.0, "P4: backlog", parallelism=4
    )
    row = a_row(parallelism=None, settings='{"spark.executor.memory": "9g"}')
    assert FleetDecision.from_row(row, NOW).settings == {"spark.executor.memory": "9g"}
    assert FleetDecision.from_row(a_row(), NOW + 86_400.0).expires_at == NOW + 600.0, "late, not wrong"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"decision_id": 2**62}, "decision_id"),
        ({"decision_id": round(NOW * 1000) + 3_600_000}, "decision_id"),
        ({"decision_id": 0}, "decision_id"),
        ({"decision_id": -5}, "decision_id"),
        ({"decision_id": None}, "decision_id"),
        ({"decision_id": "7"}, "decision_id"),
        ({"decision_id": True}, "decision_id"),
        ({"expires_at": None}, "expires_at"),
        ({"expires_at": float("nan")}, "expires_at"),
        ({"expires_at": float("inf")}, "expires_at"),
        ({"expires_at": 10**400}, "expires_at"),
        ({"expires_at": NOW + 7200.0}, "expires_at"),
        ({"expires_at": NOW - 1.0}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"reason": None}, "reason"),
        ({"reason": 7}, "reason"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 100_000}, "reason"),
        ({"reason": "P4\nINFO all is well"}, "reason"),
        ({"reason": "P4\x1b[2J"}, "reason"),
        ({"reason": "P4\u202e"}, "reason"),
        ({"parallelism": 0}, "parallelism"),
        ({"parallelism": -1}, "parallelism"),
        ({"parallelism": 2.5}, "parallelism"),
        ({"parallelism": True}, "parallelism"),
        ({"parallelism": 2**62}, "parallelism"),
        ({"parallelism": None}, "neither"),
        ({"settings": "{"}, "settings"),
        ({"settings": "[1]"}, "settings"),
        ({"settings": 7}, "settings"),
        ({"settings": '{"spark.executor.memory": 9}'}, "settings"),
        ({"settings": '{"spark.executor.memory": "9\\u0000g"}'}, "settings"),
        ({"settings": orjson.dumps({"k": "x" * 100_000}).decode()}, "settings"),
        ({"settings": "[" * 10_000}, "settings"),
    ],
)
def test_a_bad_row_is_refused_with_what_is_wrong(changes: dict[str, Any], said: str):
    with pytest.raises(BadInput, match=said) as error:
        FleetDecision.from_row(a_row(**changes), NOW)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("key", ["decision_id", "expires_at", "reason", "parallelism", "settings"])
def test_a_value_that_is_nested_deeply_is_refused_in_a_short_message(key: str):
    with pytest.raises(BadInput, match=key) as error:
        FleetDecision.from_row(a_row(**{key: orjson.loads(NESTED)}), NOW)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("row", [None, [], 7, "words", {}, {"decision_id": 5}])
def test_what_is_no_row_is_refused_too(row: Any):
    with pytest.raises(BadInput):
        FleetDecision.from_row(row, NOW)


@pytest.mark.parametrize(
    "bad", [{"decision_id": 2**62}, {"reason": None}, {"parallelism": None}, {"expires_at": None}]
)
def test_a_good_row_counts_beside_a_bad_one_in_the_same_file(
    tmp_path: Path, bad: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    now = time.time()
    write(tmp_path, 1, a_row(now - 2), a_row(now - 1, **bad), a_row(now))
    found = DirectoryTransport(tmp_path).decisions("words")
    assert [one.decision_id for one in found] == [round((now - 2) * 1000), round(now * 1000)]
    (record,) = caplog.records
    assert "batch-000000001.jsonl" in record.getMessage() and next(iter(bad)) in record.getMessage()


def test_a_number_that_cannot_be_does_not_deafen_the_application(journal: Journal, tmp_path: Path):
    """Remembered as the last one that was handled, it would outlive the file and the driver."""
    now = time.time()
    write(tmp_path, 1, a_row(now, decision_id=2**62, expires_at=now + 1.0))
    agent = an_agent(DirectoryTransport(tmp_path), journal)
    assert isinstance(agent.propose(a_window(now)), Hold)
    write(tmp_path, 2, a_row(now + 5.0))
    assert isinstance(agent.propose(a_window(now + 10.0)), Scale)


@pytest.mark.parametrize("known", [2**62, "2^62", None, [1]])
def test_a_number_that_cannot_be_is_forgotten_where_it_was_remembered(journal: Journal, known: Any):
    journal.remember(1.0, "words", "fleet", "handled", {"decision": known, "outcome": "done"})
    post = Post()
    agent = an_agent(post, journal)
    post.waiting = [FleetDecision(5000, 600.0, "before", parallelism=4)]
    assert isinstance(agent.propose(a_window(10.0)), Hold), "what was done may be among what came before"
    post.waiting = [FleetDecision(15_000, 600.0, "after", parallelism=4)]
    assert isinstance(agent.propose(a_window(20.0)), Scale)
    assert isinstance(agent.propose(a_window(30.0, executors=4)), Hold)
    assert journal.recall("words", "fleet")["handled"]["decision"] == 15_000
    assert post.sent[-1]["acknowledged"] == 15_000


def test_a_file_with_a_huge_number_hides_no_later_one(tmp_path: Path):
    now = time.time()
    write(tmp_path, 1, a_row(now - 3))
    transport = DirectoryTransport(tmp_path)
    assert len(transport.decisions("words")) == 1
    write(tmp_path, 999_999_999_999, a_row(now - 2))
    transport.decisions("words")
    write(tmp_path, 2, a_row(now - 1))
    found = transport.decisions("words")
    assert [one.decision_id for one in found] == [round((now - 1) * 1000)]
    assert transport.decisions("words") == []


def test_a_batch_that_is_numbered_like_an_earlier_one_is_read(tmp_path: Path):
    """The job began anew while this application was paused."""
    now = time.time()
    old = write(tmp_path, 1, a_row(now - 3))
    transport = DirectoryTransport(tmp_path)
    transport.decisions("words")
    old.rename(tmp_path / "moved-away.jsonl")
    write(tmp_path, 1, a_row(now - 1))
    assert len(transport.decisions("words")) == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"application":"words","x":1}',
        b'{"application":"words",',
        b'{"application":"words",}{}',
        b'{"application":"words","decision_id":' + NESTED + b"}",
        b'{"application":"words","decision_id":1,"expires_at":' + NESTED + b"}",
    ],
)
def test_a_line_that_is_no_decision_is_passed_over(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
):
    now = time.time()
    path = write(tmp_path, 1, a_row(now))
    path.write_bytes(line + b"\n" + path.read_bytes())
    write(tmp_path, 2, a_row(now))
    assert len(DirectoryTransport(tmp_path).decisions("words")) == 2
    assert "batch-000000001.jsonl" in caplog.text


def test_a_name_that_is_given_twice_decides_for_nobody_else(tmp_path: Path):
    row = orjson.dumps(a_row(time.time())).removesuffix(b"}") + b',"application":"others"}'
    path = write(tmp_path, 1)
    path.write_bytes(row + b"\n")
    transport = DirectoryTransport(tmp_path)
    assert transport.decisions("words") == []


def test_a_message_with_a_bad_row_is_passed_over(caplog: pytest.LogCaptureFixture):
    fleet = FleetKey(bytes(32))
    key = fleet.for_application("words")

    def taken(**changes: Any) -> int:
        (row,) = fleet.sign(pa.Table.from_pylist([a_row(**changes)])).to_pylist()
        return len(read_message(orjson.dumps(row), "agents", key, NOW))

    assert taken(decision_id=2**62) == 0
    assert "agents-decisions" in caplog.text and "decision_id" in caplog.text
    assert taken(remark="x" * 2_000_000) == 0
    assert taken() == 1


@pytest.fixture
def directory(tmp_path: Path) -> FleetDirectory:
    """A decision of the controller's own in batch 1."""
    start, place = time.time() - 100.0, FleetDirectory(tmp_path)
    records = [a_record("a", end=start + 10.0 * n, heap_used_bytes=5.8 * GIB) for n in range(4)]
    result = play_round(empty_state(), a_table(*records), SageSettings())
    place.write_decisions(1, tabulate_decisions(result, SageSettings()))
    return place


@pytest.mark.parametrize(
    "bad",
    [
        {"at": None},
        {"at": 1e300},
        {"application": None},
        {"application": "a\0b"},
        {"reason": None},
        {"reason": "a\0b"},
        {"settings": "{"},
        {"symptom": "a\0b"},
        {"held_cores": None},
        {"measured": None},
        {"decision_id": 2**62},
    ],
)
def test_a_bad_row_keeps_nothing_else_out_of_the_journal(
    directory: FleetDirectory, journal: Journal, bad: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    (path,) = (path for _, path in directory.decision_files())
    (good,) = map(orjson.loads, path.read_bytes().splitlines())
    write(directory.root, 1, {**good, **bad}, {**good, "application": "b"})
    assert ActionLog(directory, journal).catch_up(1)
    assert [one.application for one in journal.decisions()] == ["b"]
    assert "batch-000000001.jsonl" in caplog.text


@pytest.mark.parametrize("key", [None, FleetKey(bytes(32))])
def test_a_name_that_is_nested_deeply_keeps_nothing_else_out_of_the_journal(
    directory: FleetDirectory, journal: Journal, key: FleetKey | None, caplog: pytest.LogCaptureFixture
):
    write(directory.root, 1).write_bytes(b'{"application":' + NESTED + b"}\n")
    assert ActionLog(directory, journal, key).catch_up(1)
    assert "batch-000000001.jsonl" in caplog.text


def test_a_huge_batch_does_not_keep_later_ones_out_of_the_journal(
    directory: FleetDirectory, journal: Journal
):
    """A batch later than the one that is being done cannot be."""
    (path,) = (path for _, path in directory.decision_files())
    foreign = path.with_name("batch-999999999999.jsonl")
    foreign.write_bytes(path.read_bytes())
    assert ActionLog(directory, journal).catch_up(1)
    rows = [{**row, "application": "later"} for row in map(orjson.loads, path.read_bytes().splitlines())]
    write(directory.root, 2, *rows)
    assert ActionLog(directory, journal).catch_up(2)
    assert [(one.application, one.count) for one in journal.decisions()] == [("a", 1), ("later", 1)]
    journal.remember(1.0, "penstock-fleet", "fleet", "journalled", {"batch": 2**62})
    write(directory.root, 3, *({**row, "application": "last"} for row in rows))
    assert ActionLog(directory, journal).catch_up(3)
    assert "last" in {one.application for one in journal.decisions()}
