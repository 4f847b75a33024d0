"""One file does not stop the fleet: what is too large is refused before it is read, and said once."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest

from penstock.cli import perform
from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadInput
from penstock.fleet.admission import MOST_LINES, Admission
from penstock.fleet.places import LONGEST_LINE, FleetDirectory, read_decision_lines
from penstock.fleet.records import Read, read_lines
from penstock.fleet.round import play_round
from penstock.fleet.state import empty_state
from penstock.fleet.status import tabulate_status
from tests.fleet.agents import a_record, a_table

LATER = 1e12
MIB = 1 << 20


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def names_in(reads: list[Read]) -> list[str]:
    return [name for read in reads for name in read.windows["application"].to_pylist()]


def dead_in(reads: list[Read]) -> list[dict[str, str]]:
    return [row for read in reads for row in read.dead.to_pylist()]


def test_a_sparse_file_of_three_gigabytes_costs_no_memory_and_no_other_file(tmp_path: Path):
    huge, good = tmp_path / "huge.jsonl", tmp_path / "good.jsonl"
    with huge.open("wb") as file:
        file.truncate(3 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    good.write_bytes(orjson.dumps(a_record("a")))
    before = peak()
    reads = list(Admission().read_files([str(huge), str(good)], LATER))
    assert peak() - before < 100 * MIB
    assert names_in(reads) == ["a"]
    (dead,) = dead_in(reads)
    assert dead["origin"] == str(huge) and "3,072.0 MiB are more than the 64.0 MiB" in dead["reason"]


def test_a_parquet_file_among_the_windows_is_one_bad_record(tmp_path: Path):
    """Its columns may grow a thousandfold when they are read, so none is."""
    parquet, good = tmp_path / "a.parquet", tmp_path / "good.jsonl"
    parquet.write_bytes(b"PAR1")
    good.write_bytes(orjson.dumps(a_record("a")))
    reads = list(Admission().read_files([f"file://{parquet}", str(good)], LATER))
    assert names_in(reads) == ["a"]
    (dead,) = dead_in(reads)
    assert dead["origin"] == f"file://{parquet}" and "JSON lines, not as Parquet" in dead["reason"]


def test_a_long_line_costs_no_more_than_itself(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    long = orjson.dumps({**a_record("long"), "remark": "x" * LONGEST_LINE})
    path.write_bytes(b"\n".join([orjson.dumps(a_record("a")), long, orjson.dumps(a_record("b"))]))
    reads = list(Admission().read_files([str(path)], LATER))
    assert names_in(reads) == ["a", "b"]
    (dead,) = dead_in(reads)
    assert "longer than" in dead["reason"] and len(dead["record"]) == 4_000


def test_a_file_of_too_many_lines_is_one_bad_record(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x\n" * (MOST_LINES + 1))
    (dead,) = dead_in(list(Admission().read_files([str(path)], LATER)))
    assert f"more than {MOST_LINES} lines" in dead["reason"]


def test_what_is_no_file_or_is_gone_keeps_nobody_waiting(tmp_path: Path):
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    good = tmp_path / "with space, %41 and #.jsonl"
    good.write_bytes(orjson.dumps(a_record("a")))
    reads = list(Admission().read_files([str(pipe), str(tmp_path / "gone.jsonl"), f"file:{good}"], LATER))
    assert names_in(reads) == ["a"]
    reasons = [row["reason"] for row in dead_in(reads)]
    assert "not a regular file" in reasons[0] and "No such file" in reasons[1]


def test_many_files_are_not_all_in_memory_at_once(tmp_path: Path):
    line = orjson.dumps({**a_record("a"), "remark": "x" * (LONGEST_LINE // 2)})
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.jsonl"))
        Path(paths[-1]).write_bytes(b"\n".join([line] * 40))
    reads = list(Admission().read_files(paths, LATER))
    assert [read.windows.num_rows for read in reads] == [40, 40, 40, 0]


def test_a_long_message_is_one_bad_record():
    good, long = orjson.dumps(a_record("a")), b"\n" * (LONGEST_LINE + 1)
    read = Admission().read_messages(["t/0/1", "t/0/2", "t/0/3"], [good, b"x" + long, good], LATER)
    assert read.windows.num_rows == 2
    (dead,) = read.dead.to_pylist()
    assert dead["origin"] == "t/0/2" and "longer than" in dead["reason"]


def test_json_that_is_nested_deeply_ends_no_process():
    deep = b'{"application": ' + b"[" * (LONGEST_LINE // 2)
    ignored = b'{"x": ' + b'{"x":' * 100_000 + b"1" + b"}" * 100_000 + b"}"
    read = read_lines([deep, ignored, orjson.dumps(a_record("a"))], ["f"] * 3)
    assert read.windows["application"].to_pylist() == ["a"] and read.dead.num_rows == 2


@pytest.mark.parametrize("name", ["application", "start", "held_parallelism"])
def test_json_that_is_nested_as_deeply_as_can_be_read_is_one_bad_record(name: str):
    """Python reads it, and gives up when it is to be written into a message."""
    nested = b'{"%s": %s}' % (name.encode(), b"[" * 1000 + b"]" * 1000)
    read = read_lines([nested, orjson.dumps(a_record("a"))], ["f"] * 2)
    assert read.windows["application"].to_pylist() == ["a"]
    (dead,) = read.dead.to_pylist()
    assert len(dead["reason"]) < 300


def test_a_foreign_file_in_the_status_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    place = FleetDirectory(tmp_path)
    for table in (
        pa.table({"x": [1]}),
        pa.table({name: ["x"] for name in ("application", "at", "parallelism", "needed_parallelism",
                  "allocated_cores", "needed_cores", "allocated_bytes", "needed_bytes", "in_flight")}),
        pa.table({"x": pa.repeat(pa.scalar(0, pa.int8()), 20_000_000)}),
    ):  # fmt: skip
        place.write_status(0, table)
        assert perform(["fleet", "status", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("penstock: error:") and "bucket-00.parquet" in said and said.count("\n") == 1


def test_names_that_are_no_text_in_the_status_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    place, settings = FleetDirectory(tmp_path), SageSettings()
    status = tabulate_status(
        play_round(empty_state(), a_table(a_record("abc", time.time())), settings).state, settings
    )
    ends = pa.py_buffer(np.array([0, 3], dtype=np.int32).tobytes())
    name = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(b"\xff\xfe\xfd")])
    place.write_status(0, status.set_column(0, "application", name))
    assert perform(["fleet", "status", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "bucket-00.parquet: not a file of the fleet" in said and said.count("\n") == 1


def test_a_pipe_among_the_dead_letters_keeps_nobody_waiting(tmp_path: Path):
    place = FleetDirectory(tmp_path)
    place.write_dead(1, read_lines([b"nonsense"], ["file"]).dead)
    os.mkfifo(tmp_path / "dead-letters" / "batch-000000002.jsonl")
    assert place.dead_letters() == 1


def test_foreign_decisions_in_the_status_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    place = FleetDirectory(tmp_path)
    place.write_decisions(1, pa.table({"x": [1]}))
    assert perform(["fleet", "status", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "batch-000000001.jsonl: line 1" in said and "lacks application" in said and said.count("\n") == 1
    row = {"application": "a", "decision_id": 2**62, "at": 1e300, "rule": None, "reason": None}
    place.write_decisions(1, pa.Table.from_pylist([row, {**row, "at": None}]))
    assert perform(["fleet", "status", str(tmp_path)]) == 0, "what cannot be is not shown"


@pytest.mark.parametrize("name", ["rule", "reason", "decision_id"])
def test_a_foreign_decision_with_parts_in_it_is_one_clear_line_in_the_status(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
):
    row = {"application": "a", "decision_id": 1, "at": time.time(), "rule": "P4", "reason": "backlog"}
    del row[name]
    nested = f', "{name}": '.encode() + b"[" * 1000 + b"]" * 1000 + b"}\n"
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "batch-000000001.jsonl").write_bytes(orjson.dumps(row)[:-1] + nested)
    assert perform(["fleet", "status", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"line 1 is not a decision of the fleet: {name}" in said and said.count("\n") == 1


def test_a_decision_that_is_gone_when_it_is_looked_at_ends_nothing(tmp_path: Path):
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "batch-000000001.jsonl").symlink_to(tmp_path / "gone")
    assert FleetDirectory(tmp_path).decisions() == []


def test_a_decision_file_that_is_too_large_is_refused_too(tmp_path: Path):
    path = tmp_path / "batch-000000001.jsonl"
    path.write_bytes(b"{}")
    os.truncate(path, 3 << 30)
    before = peak()
    with pytest.raises(BadInput, match=r"batch-000000001.*3,072\.0 MiB"):
        read_decision_lines(path)
    assert peak() - before < 100 * MIB
