"""Where windows come from and decisions go: directories, or Kafka topics."""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import ActionFailed, BadInput

MOST_AHEAD_SECONDS = 3600.0
"""An agent's clock may be wrong by so much; what it reports is not from a later time than that."""
_KAFKA = re.compile(r"^kafka://([^/\s]+)/([A-Za-z0-9._-]+)$")


@dataclass(frozen=True, slots=True)
class Topic:
    """A Kafka topic."""

    servers: str
    name: str


def place_of(text: str) -> Path | Topic:
    """A directory, or `kafka://HOST:PORT/TOPIC`."""
    match = _KAFKA.match(text)
    if match:
        return Topic(match[1], match[2])
    if "://" in text and not text.startswith("file://"):
        raise BadInput(f"{text}: a directory or kafka://HOST:PORT/TOPIC is expected")
    return Path(text.removeprefix("file://"))


class FleetDirectory:
    """What the controller writes; every file appears whole, and writing one again changes nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def checkpoint(self) -> Path:
        """Where the job keeps its progress and its state."""
        return self.root / "checkpoint"

    @property
    def overrides(self) -> Path:
        """What operators said of applications."""
        return self.root / "overrides.json"

    def write_decisions(self, batch: int, decisions: pa.Table) -> None:
        """The decisions of one batch; none, no file."""
        if decisions.num_rows:
            _write_table(self.root / "decisions" / f"batch-{batch:09d}.parquet", decisions)

    def write_status(self, bucket: int, status: pa.Table) -> None:
        """How the applications of one bucket stand, in place of what was there."""
        _write_table(self.root / "status" / f"bucket-{bucket:02d}.parquet", status)

    def write_dead(self, batch: int, dead: pa.Table) -> None:
        """Bad records of one batch, a JSON line each."""
        if dead.num_rows:
            lines = b"".join(orjson.dumps(row) + b"\n" for row in dead.to_pylist())
            _write_whole(self.root / "dead-letters" / f"batch-{batch:09d}.jsonl", lines)

    def decision_files(self, after: int = -1) -> list[tuple[int, Path]]:
        """The files of decisions after a batch, in the order of batches; all where they are numbered anew."""
        paths = sorted((self.root / "decisions").glob("batch-*.parquet"))
        numbers = [(path.stem.removeprefix("batch-"), path) for path in paths]
        found = [(int(number), path) for number, path in numbers if number.isdecimal()]
        anew = bool(found) and found[-1][0] < after
        return [(batch, path) for batch, path in found if anew or batch > after]

    def check(self) -> None:
        """Refuse to number batches anew beside those of before: nobody would look at them."""
        if not self.checkpoint.exists() and self.decision_files():
            raise BadInput(
                f"{self.root / 'decisions'}: of a job whose {self.checkpoint} is gone: move them away first"
            )

    def decisions(self, since: float = float("-inf")) -> list[dict[str, object]]:
        """Decisions at or after a moment, in the order of their batches."""
        # in a month there are a hundred thousand files, which need not be opened to see that they are old
        oldest = since - MOST_AHEAD_SECONDS
        files = [path for _, path in self.decision_files() if path.stat().st_mtime >= oldest]
        return [row for path in files for row in read_table(path).to_pylist() if row["at"] >= since]

    def decision_count(self) -> int:
        """How many decisions there are; a file that a disk has spoilt has none."""
        return sum(_rows_in(path) for _, path in self.decision_files())

    def status(self) -> pa.Table | None:
        """How all applications stand, or nothing before the first round."""
        found = sorted((self.root / "status").glob("bucket-*.parquet"))
        if not found:
            return None
        # files of an earlier version may lack a column until their bucket is judged again
        return pa.concat_tables([read_table(path) for path in found], promote_options="default")

    def dead_letters(self) -> int:
        """How many bad records there were."""
        files = (self.root / "dead-letters").glob("batch-*.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in files)


def read_table(path: Path) -> pa.Table:
    """A Parquet file as a table."""
    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def _rows_in(path: Path) -> int:
    """How many rows a Parquet file has, by its footer alone."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return 0


def _write_table(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    _write_whole(path, sink.getvalue().to_pybytes())


def _write_whole(path: Path, content: bytes) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        raise ActionFailed(f"{path}: cannot be written: {error.strerror}") from error


def append_window(directory: Path, application: str, end: float, record: dict[str, object]) -> Path:
    """Put one window into a directory that the controller reads, as a file of its own.

    Spark passes over files whose names begin with `_` or `.`, and so might a cleaned name; two applications
    may have the same one.
    """
    cleaned = re.sub(r"[^A-Za-z0-9._-]", "_", application)[:100]
    number = zlib.crc32(application.encode())
    path = directory / f"{number:08x}-{cleaned}-{round(end * 1000)}.jsonl"
    _write_whole(path, orjson.dumps(record) + b"\n")
    return path
