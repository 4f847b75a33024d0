"""Where windows come from and decisions go: directories, or Kafka topics."""

from __future__ import annotations

import io
import math
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import BadInput
from penstock.fleet.decision import MOST_CLOCK_SECONDS
from penstock.fleet.files import MIB, check_size, count_lines, make_directory, read_bounded, write_whole
from penstock.units.texts import show_value

STATUS = pa.schema(
    [
        ("application", pa.string()),
        ("at", pa.float64()),
        ("parallelism", pa.int64()),
        ("needed_parallelism", pa.float64()),
        ("allocated_cores", pa.float64()),
        ("needed_cores", pa.float64()),
        ("allocated_bytes", pa.float64()),
        ("needed_bytes", pa.float64()),
        ("missing_bytes", pa.float64()),
        ("starved", pa.bool_()),
        ("in_flight", pa.int64()),
    ]
)
"""How an application stands."""
ADDED = ("missing_bytes", "starved")
"""Columns that files of an earlier version lack until their bucket is judged again."""
MOST_STATUS_ROWS = 1_000_000
MOST_STATUS_BYTES = 256 * MIB
LONGEST_LINE = MIB
"""Bytes of a line or message; a window takes a thousandth of it."""
SHOWN = ("application", "decision_id", "at", "rule", "reason")
"""Members of a decision that `fleet status` shows."""
HOUR, DAY = 3600.0, 86_400.0
SETTLED_SECONDS = 2.0
"""A directory that changed longer ago than this changes its time when it changes again."""
_BATCH = re.compile(r"^batch-([0-9]+)\.jsonl$")
_KAFKA = re.compile(r"^kafka://([^/\s]+)/([A-Za-z0-9._-]+)$")


@dataclass(frozen=True, slots=True)
class FleetTopic:
    """A Kafka topic, and the options of security that its clients need."""

    servers: str
    name: str
    security: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_place(text: str, security: Mapping[str, str] | None = None) -> Path | FleetTopic:
    """Parse a directory, or `kafka://HOST:PORT/TOPIC`."""
    match = _KAFKA.match(text)
    if match:
        return FleetTopic(match[1], match[2], security or {})
    if "://" in text and not text.startswith("file://"):
        raise BadInput(f"{text}: a directory or kafka://HOST:PORT/TOPIC is expected")
    return Path(text.removeprefix("file://"))


class FleetDirectory:
    """The files that the controller writes; each appears whole, and writing one again changes nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._decisions = root / "decisions"
        self._put_away = self._decisions / "old"
        self._look_at = -math.inf

    @property
    def checkpoint(self) -> Path:
        """Where the job keeps its progress and its state."""
        return self.root / "checkpoint"

    @property
    def overrides(self) -> Path:
        """The snapshot of what operators said, which the job's tasks read."""
        return self.root / "overrides.json"

    @property
    def budget(self) -> Path:
        """How much of its budget of changes the fleet has spent."""
        return self.root / "budget.json"

    @property
    def journal(self) -> Path:
        """Where operators speak, unless another journal is named."""
        return self.root / "journal.db"

    def write_decisions(self, batch: int, decisions: pa.Table) -> None:
        """Write the decisions of one batch, a JSON line each; no file if there are none."""
        self._write_lines("decisions", batch, decisions)
        self._put_old_away(time.time())

    def write_dead(self, batch: int, dead: pa.Table) -> None:
        """Write the bad records of one batch, a JSON line each; no file if there are none."""
        self._write_lines("dead-letters", batch, dead)

    def _write_lines(self, directory: str, batch: int, table: pa.Table) -> None:
        if table.num_rows:
            lines = b"".join(orjson.dumps(row) + b"\n" for row in table.to_pylist())
            write_whole(self.root / directory / f"batch-{batch:09d}.jsonl", lines)

    def write_status(self, bucket: int, status: pa.Table) -> None:
        """Write how the applications of one bucket stand, in place of what was there."""
        sink = pa.BufferOutputStream()
        pq.write_table(status, sink, compression="zstd")
        write_whole(self.root / "status" / f"bucket-{bucket:02d}.parquet", sink.getvalue().to_pybytes())

    def decision_files(self, after: int = -1, up_to: float = math.inf) -> list[tuple[int, Path]]:
        """Return the files of decisions after a batch, in order; all of them if batches are numbered anew."""
        found = _list_batches(self._decisions)
        if not found or found[0][0] > after + 1:
            found = _list_batches(self._put_away) + found
        found = [(batch, path) for batch, path in found if batch <= up_to]
        anew = bool(found) and found[-1][0] < after
        return [(batch, path) for batch, path in found if anew or batch > after]

    def _put_old_away(self, now: float) -> None:
        """Once an hour, move what nobody asks for any more out of the way of the agents."""
        if now < self._look_at:
            return
        self._look_at = now + HOUR
        for _, path in _list_batches(self._decisions):
            # one that stays, or has gone already, costs no more than a place in the list
            with suppress(OSError):
                if path.stat().st_mtime < now - DAY:
                    make_directory(self._put_away)
                    path.replace(self._put_away / path.name)

    def check(self) -> None:
        """Refuse to number batches anew beside those of before: nobody would look at them."""
        if not self.checkpoint.exists() and self.decision_files():
            raise BadInput(
                f"{self.root / 'decisions'}: of a job whose {self.checkpoint} is gone: move them away first"
            )

    def decisions(self, since: float = -math.inf, until: float = math.inf) -> list[dict[str, Any]]:
        """Return the decisions between two moments, in the order of their batches."""
        files = [path for _, path in self.recent_files(since)]
        rows = [row for path in files for row in read_shown(path)]
        return [row for row in rows if isinstance(row["at"], float) and since <= row["at"] <= until]

    def recent_files(self, since: float | None = None) -> list[tuple[int, Path]]:
        """Return the files with decisions after a moment, by default an hour ago, and perhaps older ones."""
        # those that were put away need not be looked at, nor the others opened, to see that they are old
        oldest = (time.time() - HOUR if since is None else since) - MOST_CLOCK_SECONDS
        return [(batch, path) for batch, path in _list_batches(self._decisions) if _find_time(path) >= oldest]

    def decision_count(self) -> int:
        """Count the decisions."""
        return sum(count_lines(path) for _, path in self.decision_files())

    def status(self) -> pa.Table | None:
        """Read how all applications stand; None before the first round."""
        found = sorted((self.root / "status").glob("bucket-*.parquet"))
        return join_status([read_status(path) for path in found])

    def last_round(self) -> float | None:
        """Return when the controller wrote last how applications stand; None before its first round."""
        times = map(_find_time, (self.root / "status").glob("bucket-*.parquet"))
        return max((at for at in times if not math.isnan(at)), default=None)

    def last_arrival(self) -> float | None:
        """Return when a window came last; None where windows come by another way."""
        at = _find_time(self.root / "windows")
        return None if math.isnan(at) else at

    def dead_letters(self) -> int:
        """Count the bad records."""
        return sum(map(count_lines, (self.root / "dead-letters").glob("batch-*.jsonl")))


def _find_time(path: Path) -> float:
    """Return when a file or directory changed; NaN, which is at no time, for one that is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return math.nan


def _list_batches(directory: Path) -> list[tuple[int, Path]]:
    """Return number and path of all files of decisions in a directory, in the order of their numbers."""
    try:
        with os.scandir(directory) as entries:
            found = [match for match in (_BATCH.match(one.name) for one in entries) if match]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"{directory}: cannot be read: {error.strerror}") from None
    return sorted((int(match[1]), directory / match[0]) for match in found)


class NewDecisions:
    """Finds the files of decisions that came since the last look.

    A directory to which nothing came is not even listed: over the years a fleet writes many files. Files are
    known by name and inode, not by the highest number: one may claim any number.
    """

    def __init__(
        self, directory: Path, scan: Callable[[Path], Iterator[os.DirEntry[str]]] = os.scandir
    ) -> None:
        self.directory, self._scan = directory, scan
        self._known: set[tuple[str, int]] = set()
        self._unchanged_since: int | None = None

    def find(self) -> list[Path]:
        """Return the new ones, in the order of their numbers."""
        now = time.time()
        try:
            changed = self.directory.stat().st_mtime_ns
            if changed == self._unchanged_since:
                return []
            there = {(one.name, one.inode()) for one in self._scan(self.directory)}
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(f"{self.directory}: cannot be read: {error.strerror}") from None
        # what comes after the look and in the same tick of the file system's clock leaves the time as it was
        self._unchanged_since = changed if changed < (now - SETTLED_SECONDS) * 1e9 else None
        matches = [match for match in (_BATCH.match(name) for name, _ in there - self._known) if match]
        self._known = there
        return [self.directory / match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


def read_decision_lines(path: Path) -> list[bytes]:
    """Read the lines of a file of decisions; BadInput names one that is too large or cannot be read."""
    try:
        return read_bounded(path).splitlines()
    except (BadInput, OSError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None


def parse_decision(line: bytes) -> dict[str, Any]:
    """Parse one line or message; BadInput if it is too long or no JSON object."""
    if len(line) > LONGEST_LINE:
        raise BadInput(f"{len(line)} bytes are more than {LONGEST_LINE}")
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise BadInput("not a JSON object")
    return row


def read_shown(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the decisions of a file; BadInput names the line that is none."""
    for number, line in enumerate(read_decision_lines(path), 1):
        try:
            row = parse_decision(line)
            lacking = [name for name in SHOWN if name not in row]
            if lacking:
                raise BadInput(f"it lacks {lacking[0]}")
            nested = [name for name in SHOWN if isinstance(row[name], dict | list)]
            if nested:
                raise BadInput(f"{nested[0]} has parts: {show_value(row[nested[0]])}")
        except BadInput as error:
            raise BadInput(f"{path}: line {number} is not a decision of the fleet: {error}") from None
        yield row


def read_status(path: Path) -> pa.Table:
    """Read how the applications of one bucket stand; BadInput if the file is not the controller's."""
    try:
        # read_table would import pandas, which is as long again as a whole fleet takes
        file = pq.ParquetFile(io.BytesIO(read_bounded(path)))
        _check_footer(file.metadata)
        fields = [one for one in STATUS if one.name not in ADDED or one.name in file.schema.names]
        names = [one.name for one in fields]
        table = file.read(columns=names).select(names).cast(pa.schema(fields))
        # Parquet does not see to it that a text is one
        table.validate(full=True)
        nulls = [name for name in table.column_names if table[name].null_count]
        if nulls:
            raise BadInput(f"{nulls[0]} is missing in some rows")
    except (BadInput, pa.ArrowException, OSError, ValueError, KeyError) as error:
        said = " ".join(str(error).split())
        raise BadInput(f"{path}: not a file of the fleet: {said}") from None
    return table


def join_status(buckets: Sequence[pa.Table]) -> pa.Table | None:
    """Put the buckets together; None where there is none yet."""
    return pa.concat_tables(buckets, promote_options="default") if buckets else None


def _check_footer(footer: pq.FileMetaData) -> None:
    if footer.num_rows > MOST_STATUS_ROWS:
        raise BadInput(f"{footer.num_rows} rows are more than {MOST_STATUS_ROWS}")
    check_size(
        sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)),
        MOST_STATUS_BYTES,
    )


def append_window(directory: Path, application: str, end: float, line: bytes) -> Path:
    """Put one window, a line of JSON, into a directory that the controller reads, as a file of its own.

    Spark passes over files whose names begin with `_` or `.`, and so might a cleaned name; two applications
    may have the same one.
    """
    cleaned = re.sub(r"[^A-Za-z0-9._-]", "_", application)[:100]
    number = zlib.crc32(application.encode())
    path = directory / f"{number:08x}-{cleaned}-{round(end * 1000)}.jsonl"
    write_whole(path, line + b"\n")
    return path
