"""The fleet's job on executor processes: decisions, bad records, a crash in the middle of a round."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.decide.sage.settings import SageSettings
from penstock.fleet.admission import Admission
from penstock.fleet.keys import FleetKey
from penstock.fleet.overrides import FleetOverrides
from penstock.fleet.places import FleetDirectory
from penstock.fleet.reporting import DirectoryTransport
from penstock.fleet.spark_job import start
from penstock.journal.overrides import add_override
from penstock.journal.store import open_journal
from tests.fleet.agents import GIB, a_record

pytestmark = pytest.mark.spark
HELD = 2

KEY = FleetKey(bytes(range(32)))
NAMES = [f"app-{number}" for number in range(30)]


@pytest.fixture(scope="module")
def spark(local_cluster):
    session = local_cluster(held=HELD)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    return session


class Fleet:
    """Thirty applications, of which every third has too small a heap; with a key all of them sign."""

    def __init__(self, spark: Any, root: Path, key: FleetKey | None) -> None:
        self.key = key
        self.spark, self.windows, self.directory = spark, root / "windows", FleetDirectory(root / "fleet")
        self.windows.mkdir(mode=0o755)

    def publish(self, number: int) -> None:
        """Write window `number` of each application, in two files."""
        records = [
            a_record(name, 10.0 * number, heap_used_bytes=(5.8 if place % 3 == 0 else 3.0) * GIB)
            for place, name in enumerate(NAMES)
        ]
        for name, half in ((f"{number}", records[:15]), (f"{number}-more", records[15:])):
            lines = b"".join(self.line(record) + b"\n" for record in half)
            (self.windows / f"{name}.jsonl").write_bytes(lines)

    def line(self, record: dict[str, Any], by: str | None = None) -> bytes:
        """A window in JSON, signed by its application or another."""
        if self.key is None:
            return orjson.dumps(record)
        return self.key.for_application(by or record["application"]).sign_line(record)

    def work(self, **options: Any) -> None:
        """One run of the job over what is there."""
        options = {"interval": None, "admission": Admission(self.key), **options}
        query = start(self.spark, self.windows, self.directory, SageSettings(), **options)
        query.awaitTermination()

    def decided(self) -> list[tuple[str, str, int]]:
        return [(row["application"], row["rule"], row["decision_id"]) for row in self.directory.decisions()]


@pytest.fixture
def fleet(spark, tmp_path: Path) -> Fleet:
    return Fleet(spark, tmp_path, KEY)


def test_a_fleet_is_judged_once_whatever_comes_twice_late_or_broken(fleet: Fleet):
    for number in (1, 2, 3):
        fleet.publish(number)
    bad = fleet.line({"application": "app-1", "start": 5, "end": 5})
    ahead = a_record("app-1", time.time() + 1500.0)
    foreign = fleet.line(ahead, by="app-2"), fleet.line(ahead), orjson.dumps(a_record("app-1", 35.0))
    (fleet.windows / "bad.jsonl").write_bytes(b"\n".join([b"nonsense", bad, *foreign]))
    (fleet.windows / "lines.parquet").write_bytes((fleet.windows / "1.jsonl").read_bytes())
    fleet.work()
    assert fleet.decided() == []
    assert fleet.directory.dead_letters() == 6
    status = fleet.directory.status()
    assert status is not None and sorted(status["application"].to_pylist()) == sorted(NAMES)

    def crash(batch: int, decisions: object) -> None:
        raise RuntimeError("the controller is killed before the batch is done")

    # the fourth window fills the rules' window; what comes again and late is among it
    fleet.publish(4)
    again = (fleet.windows / "2.jsonl").read_bytes() + (fleet.windows / "4.jsonl").read_bytes()
    (fleet.windows / "again.jsonl").write_bytes(again)
    with pytest.raises(Exception, match=r"penstock-fleet|controller is killed"):
        fleet.work(after_batch=crash)
    seen: list[int] = []
    fleet.work(after_batch=lambda batch, decisions: seen.append(decisions.num_rows))
    expected = sorted((name, "P1", 40_000) for name in NAMES[::3])
    assert sorted(fleet.decided()) == expected, "the batch was done twice and decided once"
    assert seen == [10]
    agent = DirectoryTransport(fleet.directory.root, KEY.for_application("app-0"))
    assert [one.decision_id for one in agent.decisions("app-0")] == [40_000], "it is signed"
    fleet.publish(5)
    fleet.work()
    assert sorted(fleet.decided()) == expected, "the actions are in flight"


def test_one_huge_file_stops_nobody(fleet: Fleet):
    """A line of 3 GB, and a small file that holds a hundred million rows; each is told of once."""
    with (fleet.windows / "huge.jsonl").open("wb") as file:
        file.truncate(3 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    group = pa.table({"end": pa.repeat(pa.scalar(0, pa.int8()), 10_000_000)})
    with pq.ParquetWriter(fleet.windows / "bomb.parquet", group.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(group, row_group_size=group.num_rows)
    assert (fleet.windows / "bomb.parquet").stat().st_size < 500_000
    for number in (1, 2, 3, 4):
        fleet.publish(number)
    # names as they may be: Spark's are read back as paths
    (fleet.windows / "3.jsonl").rename(fleet.windows / "with space, %41, # and ä.jsonl")
    fleet.work()
    fleet.publish(5)
    fleet.work()
    assert len(fleet.decided()) == 10
    letters = (fleet.directory.root / "dead-letters").glob("*.jsonl")
    rows = [orjson.loads(line) for path in letters for line in path.read_bytes().splitlines()]
    reasons = {row["origin"].split("/")[-1]: row["reason"] for row in rows}
    assert len(rows) == 2 and set(reasons) == {"huge.jsonl", "bomb.parquet"}
    assert "3,072.0 MiB" in reasons["huge.jsonl"] and "not as Parquet" in reasons["bomb.parquet"]


def test_without_a_key_only_files_of_our_own_are_judged_and_a_clock_ahead_silences_nothing(
    spark, tmp_path: Path
):
    fleet, now = Fleet(spark, tmp_path, None), time.time()
    for name, end in (("fast", now + 20.0), ("open", now)):
        (fleet.windows / f"{name}.jsonl").write_bytes(fleet.line(a_record(name, end)))
    (fleet.windows / "open.jsonl").chmod(0o666)
    fleet.work()
    status = fleet.directory.status()
    assert status is not None and status["application"].to_pylist() == ["fast"]
    assert now <= status["at"][0].as_py() <= time.time(), "by the controller's clock"
    assert fleet.directory.dead_letters() == 1


@pytest.mark.soak
def test_overrides_whose_journal_breaks_while_it_runs_stop_nothing_and_go_on_to_count(fleet: Fleet):
    journal = fleet.directory.root.parent / "journal.db"
    with closing(open_journal(journal)) as opened:
        add_override(opened, 1.0, "app-0", "ops", veto=["P1"])
    overrides = FleetOverrides(journal, fleet.directory.overrides)
    for number in (1, 2, 3):
        fleet.publish(number)
    fleet.work(overrides=overrides)
    journal.write_bytes(b"no journal")
    fleet.publish(4)
    fleet.work(overrides=overrides)
    assert sorted(name for name, _, _ in fleet.decided()) == sorted(set(NAMES[::3]) - {"app-0"})
