"""How many applications one Spark job judges in a round, how fast, in how much memory, and where time goes.

Windows are of a made-up fleet in which most applications are sized well and some are not. Each is the line
that an agent sends, written and signed by the agent's own code.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.decide.sage.metrics import HeldSize
from penstock.decide.sage.rounds import judge
from penstock.decide.sage.settings import SageSettings
from penstock.fleet.admission import Admission
from penstock.fleet.agent import record_window
from penstock.fleet.files import make_directory
from penstock.fleet.keys import FleetKey, write_line
from penstock.fleet.places import FleetDirectory
from penstock.fleet.records import decode, pack, read_lines
from penstock.fleet.round import play_round, select_applications, tabulate_decisions
from penstock.fleet.state import SAMPLES, empty_state, from_bytes, to_bytes
from penstock.fleet.status import tabulate_status
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, fit_growth
from penstock_lab.ground.processes import MemorySampler, processor_time

KEY = FleetKey(bytes(range(32)))
SIZES = (10_000, 30_000, 100_000, 300_000)
QUICK_SIZES = (1_000, 3_000)
ROUNDS, QUICK_ROUNDS = 3, 2
FILLED = 5
"""Windows of each application in the batch before the first measured one, so that rules can decide."""
IN_A_FILE = 12_500
INTERVAL = 10.0
ONE_BY_ONE = 300
TAKEN_APART = 20_000
"""Applications whose round is taken apart on one core."""
GROWTH_FROM = 10_000
"""With fewer applications the fixed cost of a Spark batch hides how the work grows."""
GIB = 1024.0**3
SEED = 11
EXECUTORS = 20
AT_ONCE = 10_000
"""Applications that are made up together; each has the same size and load whatever the number of others."""


def run(extent: Extent, progress: Progress) -> Measurement:
    """Measure rounds of the whole job, the parts of a round, and the rules one application at a time."""
    quick = (QUICK_SIZES, QUICK_ROUNDS, QUICK_SIZES[0])
    sizes, rounds, apart = quick if extent.quick else (SIZES, ROUNDS, TAKEN_APART)
    progress(f"{apart} applications, part by part")
    rows = take_apart(apart)
    progress(f"{ONE_BY_ONE} applications, one by one")
    rows.append(judge_one_by_one(ONE_BY_ONE))
    with tempfile.TemporaryDirectory(prefix="penstock-fleet-") as place, _start_session(Path(place)) as spark:
        for count in sizes:
            progress(f"{count} applications, the Spark job")
            rows.append(_run_job(spark, Path(place) / str(count), count, rounds))
    return summarise(rows)


def summarise(rows: list[Row]) -> Measurement:
    """Take the figures of the largest run that keeps up with its interval; of the smallest if none does."""
    job = sorted((row for row in rows if row["system"] == "spark job"), key=lambda row: row["applications"])
    in_time = [row for row in job if row["seconds_per_round"] <= INTERVAL]
    best = in_time[-1] if in_time else job[0]
    keys = ("applications", "seconds_per_round", "decisions_per_s", "peak_rss_bytes")
    summary = {key: best[key] for key in keys}
    growth = measure_growth({row["applications"]: row["seconds_per_round"] for row in job})
    parts = [row for row in rows if "us_per_application" in row]
    summary |= {f"{row['system']}_us_per_application": row["us_per_application"] for row in parts}
    notes = [
        "a window is what an agent sends: about 770 bytes of JSON with its signature",
        "decisions_per_s counts applications judged, changes all that got a decision in the run",
        "a round of the job lasts from the appearance of files until decisions and status are written",
        "seconds_per_round is the median of the rounds, the first ones left out",
        f"sliding windows hold {FILLED + ROUNDS} of {SAMPLES} samples in the end; full ones are larger",
        "processor_seconds_per_round is what the driver, its JVM and the workers took together",
        "peak_rss_bytes is the largest sum over the driver, its JVM and the Python workers",
        f"the exponent is the slope of log seconds over log applications, from {GROWTH_FROM} on",
        "the parts of a round are measured on one core, in processor time, without Spark",
    ]
    return Measurement(rows, {**summary, "growth_exponent": growth}, notes)


def measure_growth(seconds: dict[int, float]) -> float:
    """Return the growth exponent over large sizes, or over all where fewer than two are large."""
    large = {count: taken for count, taken in seconds.items() if count >= GROWTH_FROM}
    kept = large if len(large) > 1 else seconds
    return fit_growth(kept) if len(kept) > 1 else math.nan


def make_row(count: int, seconds: float, changes: int, peak: float, system: str = "spark job") -> Row:
    """Return the row of rounds over so many applications."""
    return {
        "case": f"{count} applications",
        "system": system,
        "applications": count,
        "seconds_per_round": seconds,
        "decisions_per_s": count / seconds,
        "changes": changes,
        "peak_rss_bytes": peak,
    }


def take_apart(count: int) -> list[Row]:
    """Measure the parts of a round, as the job's tasks go through them."""
    settings, state, changes = SageSettings(), empty_state(), 0
    spent = dict.fromkeys(("read", "judge", "keep", "tell"), 0.0)

    def time_part(part: str, work: Callable[..., Any], *given: Any) -> Any:
        begun = time.process_time()
        result = work(*given)
        spent[part] += time.process_time() - begun
        return result

    for number in range(FILLED):
        lines = list(generate_lines(0, count, number, INTERVAL, KEY))
        result = time_part("judge", play_round, state, time_part("read", _read, lines), settings)
        state = time_part("keep", lambda kept: from_bytes(to_bytes(kept)), result.state)
        changes += time_part("tell", _tell, result, settings).num_rows
    return [
        {
            "case": f"{count} applications, one core",
            "system": part,
            "applications": count,
            "us_per_application": seconds / FILLED / count * 1e6,
            "changes": changes,
        }
        for part, seconds in spent.items()
    ]


def _read(lines: list[bytes]) -> pa.Table:
    read = read_lines(lines, [""] * len(lines), key=KEY)
    return decode([payload for _, payload in pack(read, {})])


def _tell(result: Any, settings: SageSettings) -> pa.Table:
    tabulate_status(result.state, settings)
    return KEY.sign(tabulate_decisions(result, settings))


def judge_one_by_one(count: int) -> Row:
    """Measure the rules on one application at a time, as a policy of its own calls them."""
    settings, state = SageSettings(), empty_state()
    for number in range(FILLED):
        result = play_round(state, _read(list(generate_lines(0, count, number, INTERVAL, KEY))), settings)
        state = result.state
    # a change under way would keep its application from being judged
    state.in_flight[:] = 0
    everyone = select_applications(state, result.rows, result.window, result.windows)
    begun = time.perf_counter()
    rounds = [judge(everyone.take(slice(row, row + 1)), settings) for row in range(count)]
    seconds = time.perf_counter() - begun
    changes = sum(int(one.rule[0] > 0) for one in rounds)
    return make_row(count, seconds, changes, math.nan, "one by one, rules alone")


def _run_job(spark: Any, place: Path, count: int, rounds: int) -> Row:
    from penstock.fleet import spark_job

    windows, directory = place / "windows", FleetDirectory(place)
    make_directory(windows)
    times: list[float] = []
    spent: list[float] = []
    with MemorySampler() as memory:
        query = spark_job.start(
            spark, windows, directory, SageSettings(), interval="0 seconds", admission=Admission(KEY)
        )
        try:
            for numbers in [range(FILLED), *([FILLED + number] for number in range(rounds))]:
                written = [path for number in numbers for path in _write_windows(windows, count, number)]
                begun, before = time.perf_counter(), processor_time(0).everything
                for path in written:
                    path.rename(path.with_name(path.name.removeprefix(".")))
                query.processAllAvailable()
                times.append(time.perf_counter() - begun)
                spent.append(processor_time(0).everything - before)
        finally:
            query.stop()
    changes, dead = directory.decision_count(), directory.dead_letters()
    shutil.rmtree(place)
    assert not dead, f"{dead} windows were not read"
    row = make_row(count, float(np.median(times[1:])), changes, max(memory.since(0.0), default=math.nan))
    return {**row, "processor_seconds_per_round": float(np.median(spent[1:]))}


def _write_windows(windows: Path, count: int, number: int) -> Iterator[Path]:
    """Write files under names that Spark does not see yet, so that a round begins when all are there."""
    for begin in range(0, count, IN_A_FILE):
        path = windows / f".round-{number:03d}-{begin}.jsonl"
        with path.open("wb") as file:
            for line in generate_lines(begin, min(begin + IN_A_FILE, count), number, INTERVAL, KEY):
                file.write(line + b"\n")
        path.chmod(0o644)
        yield path


@contextmanager
def _start_session(place: Path) -> Iterator[Any]:
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


def generate_lines(
    first: int, last: int, number: int, interval: float, key: FleetKey | None = None
) -> Iterator[bytes]:
    """Yield window `number` of these applications as lines; one in ten is short of something."""
    for begin in range(first - first % AT_ONCE, last, AT_ONCE):
        sizes, metrics = _make_up(begin, number)
        for place in range(max(first - begin, 0), min(last - begin, AT_ONCE)):
            name = f"application-{begin + place}"
            heap, overhead = sizes[place]
            held = HeldSize(EXECUTORS, heap, overhead, 0.6, cores=4, task_cpus=1, driver_heap_bytes=2 * GIB)
            start, end = number * interval, (number + 1) * interval
            measured = {metric: values[place] for metric, values in metrics.items()}
            record = record_window(name, start, end, 0, held, measured)
            yield write_line(record, key.for_application(name) if key is not None else None)


def _make_up(begin: int, number: int) -> tuple[list[list[float]], dict[str, list[float]]]:
    """Return heap and overhead of a block of applications, and their metrics in one window."""
    random, count = np.random.default_rng((SEED, begin)), AT_ONCE
    kind = random.integers(0, 40, count)
    offered = random.uniform(1e3, 1e5, count)
    heap, overhead = random.choice([2.0, 4.0, 8.0], count) * GIB, random.choice([0.5, 1.0], count) * GIB
    noise = np.random.default_rng((SEED, begin, number)).uniform(0.98, 1.0, count)
    committed = heap * np.where(kind == 5, 0.4, 0.95)
    beside = overhead * np.where(kind == 2, 0.96, 0.72) * noise
    metrics = {
        "heap_used_bytes": committed * np.where(kind == 0, 0.99, 0.6) * noise,
        "heap_committed_bytes": committed,
        "gc_seconds": np.where(kind == 1, 2.0, 0.1) * noise,
        "gc_count": np.round(3.0 * noise),
        "memory_used_bytes": committed + beside,
        "cpu_used_cores": np.where(kind == 3, 5.2, 2.4) * np.sqrt(noise),
        "backlog_records": np.round(np.where(kind == 4, offered * (number + 1), 10.0 * noise)),
        "offered_per_second": offered * noise,
        "needed_parallelism": np.where(kind == 4, 2.0, 1.0) * EXECUTORS,
        "spilled_bytes": np.zeros(count),
        "driver_heap_used_bytes": GIB * noise,
        "out_of_memory_count": np.zeros(count),
        "memory_kill_count": np.zeros(count),
        "beside_heap_bytes": beside,
        "service_correlation": np.full(count, np.nan),
    }
    return np.column_stack([heap, overhead]).tolist(), {name: one.tolist() for name, one in metrics.items()}
