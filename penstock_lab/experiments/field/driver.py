"""The driver of one trial in the field: an ordinary script, a size to begin with, and one system that steers.

    python -m penstock_lab.experiments.field.driver --system penstock --executors 2 --notes FILE script.py ...

`penstock` is `penstock run` with all defaults, `fixed` keeps the size, `dynamic-allocation` is Spark's own.
What is held, and what batches do, is noted in the same way for all three.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import orjson

from penstock.runtime.launch import find_active_session, run_script, write_submit_arguments

SYSTEMS = ("penstock", "fixed", "dynamic-allocation")
EVERY_SECONDS = 0.5
LONGEST_START = 60.0
"""Seconds after the start in which executors beyond the size to begin with are sent away at the most."""
BEGUN_AFTER = 8.0
"""Seconds for which that size must have been held: what comes later was asked for by whoever steers."""


class Beginning:
    """The time in which executors beyond the size to begin with are sent away."""

    def __init__(self, executors: int, now: float) -> None:
        self._executors, self._until = executors, now + LONGEST_START
        self._right_since: float | None = None

    def is_over(self, held: int, now: float) -> bool:
        """Tell whether the size to begin with has been held long enough, or never will be."""
        if held != self._executors:
            self._right_since = None
        elif self._right_since is None:
            self._right_since = now
        if self._right_since is not None and now - self._right_since >= BEGUN_AFTER:
            self._until = now
        return now >= self._until


class Notes:
    """Notes the executors and the progress reports of the script's session, one JSON object a line."""

    def __init__(self, file: IO[bytes], executors: int | None) -> None:
        """`executors` is the size to begin with; None leaves it to Spark."""
        self._file, self._executors = file, executors
        self._newest: dict[str, str] = {}

    def start(self) -> None:
        """Begin to look, in a thread of its own."""
        threading.Thread(target=self._watch, name="field-notes", daemon=True).start()

    def _watch(self) -> None:
        self._write(began=True)
        while (session := find_active_session()) is None:
            time.sleep(EVERY_SECONDS / 5)
        try:
            if self._executors is not None:
                self._begin(session, self._executors)
            while True:
                self._look(session)
                time.sleep(EVERY_SECONDS)
        except Exception as error:
            # the script's session ends when it likes
            self._write(ended=str(error)[:200])

    def _begin(self, session: Any, executors: int) -> None:
        """Bring the application to the size to begin with."""
        from penstock.act.spark_executors import SparkExecutors

        pool = SparkExecutors(session)
        pool.request_total(executors)
        beginning = Beginning(executors, time.time())
        while not beginning.is_over(held := self._look(session), time.time()):
            if held > executors:
                there = pool.executors({})
                pool.release([executor.executor_id for executor in there[executors:]])
            time.sleep(EVERY_SECONDS)

    def _look(self, session: Any) -> int:
        """Note the executors and the new reports; return how many executors are held."""
        # the driver counts as one
        held = len(session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1
        self._write(executors=held)
        for query in session.streams.active:
            for report in query.recentProgress:
                plain = orjson.loads(report.json)
                if plain["timestamp"] > self._newest.get(plain["runId"], ""):
                    self._newest[plain["runId"]] = plain["timestamp"]
                    self._write(batch=_shorten_report(plain))
        return held

    def _write(self, **what: Any) -> None:
        self._file.write(orjson.dumps({"at": time.time(), **what}) + b"\n")
        self._file.flush()


def _shorten_report(report: Mapping[str, Any]) -> dict[str, Any]:
    durations = report.get("durationMs") or {}
    return {
        "query": report.get("name") or report["id"],
        "number": report["batchId"],
        "timestamp": report["timestamp"],
        "records": report["numInputRows"],
        "seconds": durations.get("triggerExecution", 0) / 1000,
        "executed": "addBatch" in durations,
    }


def list_settings(system: str, executors: int, most: int) -> dict[str, str]:
    """Return the Spark settings that a system needs beside those of the cluster."""
    if system != "dynamic-allocation":
        return {}
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.initialExecutors": str(executors),
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": str(most),
    }


def main() -> int:
    """Run the script, and return its exit code."""
    args = _parser().parse_args()
    settings = list_settings(args.system, args.executors, args.most)
    os.environ["PYSPARK_SUBMIT_ARGS"] = write_submit_arguments(settings, os.environ)
    own_size = args.system == "dynamic-allocation"
    Notes(args.notes.open("ab"), None if own_size else args.executors).start()
    if args.system == "penstock":
        from penstock import cli

        sys.argv = ["penstock", "run", args.script, *args.arguments]
        cli.main()
        return 0
    return run_script(Path(args.script), args.arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--executors", type=int, required=True, help="how many to begin with")
    parser.add_argument("--most", type=int, default=64, help="how many dynamic allocation may take")
    parser.add_argument("--notes", type=Path, required=True, help="file for what is held and what batches do")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main())
