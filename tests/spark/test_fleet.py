"""The fleet's job on executor processes: decisions, bad records, a crash in the middle of a round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from penstock.fleet.places import FleetDirectory
from penstock.fleet.round import FleetSettings
from penstock.fleet.spark_job import start
from tests.fleet.agents import GIB, a_record, a_table

pytestmark = pytest.mark.spark

NAMES = [f"app-{number}" for number in range(30)]


@pytest.fixture(scope="module")
def spark(local_cluster):
    return local_cluster(executors=2, cores=1, conf={"spark.sql.shuffle.partitions": "2"})


class Fleet:
    """Thirty applications, of which every third has too small a heap."""

    def __init__(self, spark: Any, root: Path) -> None:
        self.spark, self.windows, self.directory = spark, root / "windows", FleetDirectory(root / "fleet")
        self.windows.mkdir()

    def publish(self, number: int) -> None:
        """Window `number` of each application: JSON lines for one half, Parquet for the other."""
        records = [
            a_record(name, 10.0 * number, heap_used_bytes=(5.8 if place % 3 == 0 else 3.0) * GIB)
            for place, name in enumerate(NAMES)
        ]
        lines = b"".join(orjson.dumps(record) + b"\n" for record in records[:15])
        (self.windows / f"{number}.jsonl").write_bytes(lines)
        pq.write_table(a_table(*records[15:]), self.windows / f"{number}.parquet")

    def work(self, **options: Any) -> None:
        """One run of the job over what is there."""
        query = start(self.spark, self.windows, self.directory, FleetSettings(), interval=None, **options)
        query.awaitTermination()

    def decided(self) -> list[tuple[str, str, int]]:
        return [(row["application"], row["rule"], row["decision_id"]) for row in self.directory.decisions()]


@pytest.fixture
def fleet(spark, tmp_path: Path) -> Fleet:
    return Fleet(spark, tmp_path)


def test_a_fleet_is_judged_once_whatever_comes_twice_late_or_broken(fleet: Fleet):
    for number in (1, 2, 3):
        fleet.publish(number)
    (fleet.windows / "bad.jsonl").write_bytes(b'nonsense\n{"application": "app-1", "start": 5, "end": 5}\n')
    (fleet.windows / "bad.parquet").write_bytes(b"not parquet")
    fleet.work()
    assert fleet.decided() == []
    assert fleet.directory.dead_letters() == 3
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
    fleet.publish(5)
    fleet.work()
    assert sorted(fleet.decided()) == expected, "the actions are in flight"


@pytest.mark.soak
def test_overrides_that_break_while_it_runs_stop_nothing_and_go_on_to_count(fleet: Fleet, tmp_path: Path):
    said = tmp_path / "overrides.json"
    said.write_text('{"app-0": {"by": "ops", "veto": ["P1"]}}')
    for number in (1, 2, 3):
        fleet.publish(number)
    fleet.work(overrides=said)
    said.write_text('{"app-0": {"by"')
    fleet.publish(4)
    fleet.work(overrides=said)
    assert sorted(name for name, _, _ in fleet.decided()) == sorted(set(NAMES[::3]) - {"app-0"})
