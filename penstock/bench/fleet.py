"""How many applications one Spark job judges in a round, how fast, and in how much memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.bench.report import BenchReport, Row, Target
from penstock.decide.sage import decide
from penstock.fleet.generated import generated_windows
from penstock.fleet.places import FleetDirectory
from penstock.fleet.round import FleetSettings, play
from penstock.fleet.sage_columns import input_of
from penstock.fleet.state import SAMPLES, FleetState, empty_state

OPERATORS, INSTANCES = 10, 20
SIZES = (1_000, 10_000, 100_000)
QUICK_SIZES = (1_000, 3_000)
ROUNDS, QUICK_ROUNDS = 4, 2
FILLED = 5
"""Windows of each application in the batch before the first measured one, so that rules can decide."""
FILES = 8
INTERVAL = 10.0
ONE_BY_ONE = 300
GROWTH_FROM = 10_000
"""Below this, what a batch of Spark costs by itself hides how the work grows."""
_WATCH_SECONDS = 0.2


def run(quick: bool, progress: Callable[[str], None]) -> BenchReport:
    """Rounds of the whole job, of the columns alone, and of the pure policy one application at a time."""
    sizes = QUICK_SIZES if quick else SIZES
    rounds = QUICK_ROUNDS if quick else ROUNDS
    rows: list[Row] = []
    for count in sizes:
        progress(f"{count} applications, columns alone")
        rows.append(_columns_alone(count, rounds))
    progress(f"{ONE_BY_ONE} applications, one by one")
    rows.append(_one_by_one(ONE_BY_ONE))
    with tempfile.TemporaryDirectory(prefix="penstock-fleet-") as place, _session(Path(place)) as spark:
        for count in sizes:
            progress(f"{count} applications, the Spark job")
            rows.append(_job(spark, Path(place) / str(count), count, rounds))
    return _report(rows)


def _report(rows: list[Row]) -> BenchReport:
    job = [row for row in rows if row["system"] == "spark job"]
    largest = max(job, key=lambda row: row["applications"])
    growth = _growth(rows, "spark job")
    keys = ("applications", "seconds_per_round", "decisions_per_s", "peak_rss_bytes")
    whole = largest["applications"] >= 100_000
    return BenchReport(
        bench="fleet",
        summary={
            **{key: largest[key] for key in keys},
            "growth_exponent": growth,
            "growth_exponent_columns_alone": _growth(rows, "columns alone"),
        },
        results=rows,
        targets=[
            Target(
                "100,000 applications of 10 operators, seconds per round",
                "<= 10",
                largest["seconds_per_round"] if whole else None,
            ),
            Target("their peak memory, bytes", "< 8e9", largest["peak_rss_bytes"] if whole else None),
            Target("growth exponent (1 is linear)", "<= 1.1", growth),
        ],
        published={"fleets": "thousands of applications at LinkedIn (Sage); no figure per core is published"},
        notes=[
            f"an application has {OPERATORS} operators of {INSTANCES} instances each, summed per operator",
            "decisions_per_s counts applications judged, changes all that got a decision in the run",
            "a round of the job lasts from the appearance of files until decisions and status are written",
            "seconds_per_round is the median of the rounds, the first ones left out",
            f"sliding windows hold {FILLED + ROUNDS} of {SAMPLES} samples in the end; full ones are larger",
            "peak_rss_bytes is the largest sum over the driver, its JVM and the Python workers",
            f"the exponent is the slope of log seconds over log applications, from {GROWTH_FROM} on",
        ],
    )


def _growth(rows: list[Row], system: str) -> float:
    mine = {row["applications"]: row["seconds_per_round"] for row in rows if row["system"] == system}
    return growth_exponent(mine) if len(mine) > 1 else float("nan")


def growth_exponent(seconds: dict[int, float]) -> float:
    """The slope of the line through the logarithms."""
    kept = {n: s for n, s in seconds.items() if n >= GROWTH_FROM} or seconds
    kept = kept if len(kept) > 1 else seconds
    return float(np.polyfit(np.log(list(kept)), np.log(list(kept.values())), 1)[0])


def _row(case: str, system: str, count: int, seconds: float, changes: int, peak: float) -> Row:
    return {
        "case": case,
        "system": system,
        "applications": count,
        "seconds_per_round": seconds,
        "decisions_per_s": count / seconds,
        "changes": changes,
        "peak_rss_bytes": peak,
    }


def _columns_alone(count: int, rounds: int) -> Row:
    settings, state, changes = FleetSettings(), empty_state(), 0
    times: list[float] = []
    with _peak_memory() as peak:
        for number in range(FILLED + rounds):
            table = generated_windows(count, OPERATORS, number, INTERVAL)
            begun = time.perf_counter()
            result = play(state, table, settings)
            times.append(time.perf_counter() - begun)
            state, changes = result.state, changes + int((result.decisions.rule > 0).sum())
    return _row(
        f"{count} applications", "columns alone", count, float(np.median(times[FILLED:])), changes, peak()
    )


def _one_by_one(count: int) -> Row:
    """The pure rules on the state that the columns have after the same windows."""
    from penstock.fleet.round import _applications

    settings, state = FleetSettings(), empty_state()
    for number in range(FILLED):
        result = play(state, generated_windows(count, OPERATORS, number, INTERVAL), settings)
        state = result.state
    everyone = _applications(_not_in_flight(state), result.rows, result.window, result.windows)
    begun = time.perf_counter()
    rounds = [decide(input_of(everyone, row), settings.sage) for row in range(count)]
    seconds = time.perf_counter() - begun
    changes = sum(one.decision is not None for one in rounds)
    return _row(f"{count} applications", "one by one, rules alone", count, seconds, changes, float("nan"))


def _not_in_flight(state: FleetState) -> FleetState:
    state.in_flight[:] = 0
    return state


def _job(spark: Any, place: Path, count: int, rounds: int) -> Row:
    from penstock.fleet import spark_job

    windows, directory = place / "windows", FleetDirectory(place)
    windows.mkdir(parents=True)
    times: list[float] = []
    with _peak_memory() as peak:
        query = spark_job.start(spark, windows, directory, FleetSettings(), interval="0 seconds")
        try:
            for numbers in [range(FILLED), *([FILLED + number] for number in range(rounds))]:
                for number in numbers:
                    _write(windows, number, generated_windows(count, OPERATORS, number, INTERVAL))
                begun = time.perf_counter()
                for number in numbers:
                    _appear(windows, number)
                query.processAllAvailable()
                times.append(time.perf_counter() - begun)
        finally:
            query.stop()
    changes = sum(pq.read_metadata(path).num_rows for _, path in directory.decision_files())
    shutil.rmtree(place)
    return _row(f"{count} applications", "spark job", count, float(np.median(times[1:])), changes, peak())


def _write(windows: Path, number: int, table: pa.Table) -> None:
    """Under names that Spark does not see yet, so that a round begins when all are there."""
    step = -(-table.num_rows // FILES)
    for part in range(FILES):
        pq.write_table(table.slice(part * step, step), windows / f".{number}-{part}", compression="zstd")


def _appear(windows: Path, number: int) -> None:
    for part in range(FILES):
        (windows / f".{number}-{part}").rename(windows / f"round-{number:03d}-{part}.parquet")


@contextmanager
def _session(place: Path) -> Iterator[Any]:
    from penstock.fleet.spark_job import session

    spark = session(
        {
            "spark.driver.memory": "3g",
            "spark.sql.shuffle.partitions": "4",
            "spark.local.dir": str(place / "spark"),
            "spark.sql.streaming.minBatchesToRetain": "2",
        }
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _peak_memory() -> Iterator[Callable[[], float]]:
    """Watch the resident memory of this process and all below it."""
    ended, seen = threading.Event(), [0.0]

    def watch() -> None:
        while not ended.wait(_WATCH_SECONDS):
            seen[0] = max(seen[0], _resident(os.getpid()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: seen[0]
    finally:
        ended.set()
        watcher.join()


def _resident(root: int) -> float:
    """Bytes resident in a process and its descendants; memory that forks share is counted once for each."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    total = 0.0
    for process in parents:
        above: int | None = process
        while above and above != root:
            above = parents.get(above)
        if above == root:
            total += _resident_alone(process)
    return total


def _resident_alone(process: int) -> float:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return 0.0
