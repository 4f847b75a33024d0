"""How decisions reach an agent: what cannot be read is passed over, what is old is not read at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from penstock.decide.sage.settings import SageSettings
from penstock.errors import ActionFailed
from penstock.fleet.decision import LOOK_BACK_SECONDS, FleetDecision
from penstock.fleet.kafka import KafkaTransport, read_message
from penstock.fleet.keys import FleetKey
from penstock.fleet.places import FleetDirectory, FleetTopic
from penstock.fleet.reporting import DirectoryTransport
from penstock.fleet.round import play_round, tabulate_decisions
from penstock.fleet.state import empty_state
from penstock.runtime.surroundings import name_need_policy
from tests.fleet.agents import GIB, a_record, a_table

ROW = {"decision_id": 5, "expires_at": 9.0, "reason": "P4", "parallelism": 3, "settings": None}


@pytest.fixture
def directory(tmp_path: Path) -> FleetDirectory:
    """Decisions for one application in batches 1 and 3."""
    place = FleetDirectory(tmp_path)
    for batch in (1, 3):
        records = [
            a_record("words", end=100.0 * batch + 10.0 * number, heap_used_bytes=5.8 * GIB)
            for number in range(4)
        ]
        result = play_round(empty_state(), a_table(*records), SageSettings())
        place.write_decisions(batch, tabulate_decisions(result, SageSettings()))
    return place


def numbers(found) -> list[int]:
    return [decision.decision_id for decision in found]


def test_every_application_has_files_of_its_own_that_spark_reads(tmp_path: Path):
    """Spark's file source passes over names that begin with `_` or `.`, whatever is in the files."""
    names = ["日次集計", "夜間集計", "_words", ".words", "a/b", "a_b", "x" * 120 + "1", "x" * 120 + "2"]
    transport = DirectoryTransport(tmp_path)
    for name in names:
        transport.publish({"application": name, "end": 10.0})
    files = [path for path in (tmp_path / "windows").iterdir() if path.name[0] not in "_."]
    assert sorted(orjson.loads(path.read_bytes())["application"] for path in files) == sorted(names)


def test_each_decision_is_handed_over_once_and_to_its_application(directory: FleetDirectory):
    transport = DirectoryTransport(directory.root)
    assert numbers(transport.decisions("words")) == [130_000, 330_000]
    assert numbers(transport.decisions("words")) == []
    assert numbers(DirectoryTransport(directory.root).decisions("others")) == []


def test_a_file_that_cannot_be_read_does_not_hide_the_others(directory: FleetDirectory):
    (directory.root / "decisions" / "batch-000000002.jsonl").write_bytes(b"not json\n{}\n")
    transport = DirectoryTransport(directory.root)
    assert numbers(transport.decisions("words")) == [130_000, 330_000]
    assert numbers(transport.decisions("words")) == [], "nor is it tried again for ever"


def test_what_has_long_run_out_is_not_read(directory: FleetDirectory):
    long_ago = time.time() - LOOK_BACK_SECONDS - 60
    os.utime(directory.root / "decisions" / "batch-000000001.jsonl", (long_ago, long_ago))
    assert numbers(DirectoryTransport(directory.root).decisions("words")) == [330_000]


@pytest.mark.parametrize(
    "settings",
    [
        '{"spark.driver.extraJavaOptions": "-javaagent:/tmp/theirs.jar"}',
        '{"spark.executor.memory": "9g", "spark.python.daemon.module": "theirs"}',
        '{"spark.executor.memory": "9g -javaagent:/tmp/theirs.jar"}',
        '["spark.jars"]',
        "{",
    ],
)
def test_settings_that_no_sizing_writes_are_passed_over_alone(
    directory: FleetDirectory, settings: str, caplog: pytest.LogCaptureFixture
):
    path = directory.root / "decisions" / "batch-000000003.jsonl"
    (line,) = path.read_bytes().splitlines()
    theirs = {**orjson.loads(line), "settings": settings}
    path.write_bytes(orjson.dumps(theirs) + b"\n" + line + b"\n")
    assert numbers(DirectoryTransport(directory.root).decisions("words")) == [130_000, 330_000]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "passed over" in line and str(path) in line
    key, row = FleetKey(bytes(32)), {"application": "words", **ROW, "settings": settings}
    (message,) = map(orjson.dumps, key.sign(pa.Table.from_pylist([row])).to_pylist())
    assert read_message(message, "fleet", key.for_application("words"), 9.0) == []


def test_a_window_that_no_broker_would_take_is_a_failure_of_ours():
    """An error of the client's own would end the loop, where one of ours is told and tried again."""
    transport = KafkaTransport(FleetTopic("127.0.0.1:1", "fleet"))
    with pytest.raises(ActionFailed, match="fleet-windows"):
        transport.publish({"application": "words", "end": 1.0, "remark": "x" * 2_000_000})


def test_a_message_that_is_no_decision_is_passed_over():
    key = FleetKey(bytes(32))
    (signed,) = key.sign(pa.Table.from_pylist([{"application": "words", **ROW}])).to_pylist()
    (half,) = key.sign(pa.Table.from_pylist([{"application": "words", "decision_id": 5}])).to_pylist()
    mine = key.for_application("words")
    assert read_message(orjson.dumps(signed), "agents", mine, 9.0) == [FleetDecision(5, 9.0, "P4", 3)]
    for message in (None, b"", b"{", b"[]", b"7", orjson.dumps(half), orjson.dumps(ROW)):
        assert read_message(message, "agents", mine, 9.0) == []


@pytest.mark.parametrize(
    ("policy", "told_by"),
    [("sage", "ds2"), ("ds2", "ds2"), ("queueing", "queueing"), ("forecast:sage", "forecast:ds2")],
)
def test_what_tells_the_need_where_a_fleet_applies_the_rules(policy: str, told_by: str):
    assert name_need_policy(policy) == told_by
