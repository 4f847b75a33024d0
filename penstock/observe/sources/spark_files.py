"""File sources of running queries: where they read, where Spark logs it, and the file systems behind.

Private to Spark: the fields `metadataLog` and `options` of `FileStreamSource`; seen to work on Spark 4.3.
Local files are read directly, others through Hadoop, which turns a listing into one text inside the JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from penstock.errors import BadMetrics, SparkUnavailable
from penstock.observe.sources.file_watch import FileWatch, Listing, LocalPlace, LogReader
from penstock.observe.sources.files import FilesSeen
from penstock.observe.sources.listing import ListedFile, ListingRule, LocalListing
from penstock.observe.sources.offered import reader_for
from penstock.observe.spark_status import RunningQuery, SparkStatus, java_context, spark_errors
from penstock.units.fields import parse_duration

_DESCRIBED = re.compile(r"^FileStreamSource\[(.*)\]$", re.DOTALL)
_LOCAL = re.compile(r"^file:/+")
_STATUS = re.compile(
    r"path=(.*?); isDirectory=(true|false);(?: length=(\d+);)?.*?modification_time=(\d+);",
    re.DOTALL,
)
_WEEK = 7 * 86400.0
_FILES_OF_A_CALL = 200
"""A call costs as much as so many files."""


class SparkFiles:
    """Looks at the file sources of the queries of one application."""

    def __init__(self, spark: SparkSession, status: SparkStatus) -> None:
        self._status = status
        self._hadoop = HadoopPlace(spark._jvm, java_context(spark))
        self._watches: dict[tuple[str, int], FileWatch] = {}

    def descriptions(self, query: RunningQuery) -> tuple[str, ...]:
        """Return the sources of a query as its reports name them; none before its first batch is planned."""
        with spark_errors("listing a query's sources"):
            sources = query.execution.sources()
            return tuple(str(sources.apply(number).toString()) for number in range(sources.size()))

    def look(self, query: RunningQuery, number: int, at: float) -> FilesSeen:
        """Look at one file source of a query, at this moment of the driver's clock."""
        watch = self._watches.get((query.run_id, number))
        if watch is None:
            try:
                with spark_errors("looking for the log of a file source"):
                    watch = self._open(query, number)
            except SparkUnavailable as error:
                return FilesSeen(at, problem=str(error))
            self._watches[query.run_id, number] = watch
        return watch.look(at)

    def look_at_all(
        self, query: RunningQuery, descriptions: tuple[str, ...], at: float
    ) -> dict[int, FilesSeen]:
        """Look at the file sources among these sources of a query, by their number."""
        listed = [number for number, text in enumerate(descriptions) if reader_for(text).listed]
        return {number: self.look(query, number, at) for number in listed}

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._watches = {key: watch for key, watch in self._watches.items() if key[0] != run_id}

    def _open(self, query: RunningQuery, number: int) -> FileWatch:
        source = query.execution.sources().apply(number)
        described = _DESCRIBED.match(str(source.toString()))
        path = described.group(1) if described else ""
        log = self._log_of(query, source, number)
        rule = make_rule(_without_scheme(path), self._options_of(source))
        listing: Listing = LocalListing(rule) if _is_local(path) else HadoopListing(self._hadoop, rule)
        place = LocalPlace() if _is_local(log) else self._hadoop
        return FileWatch(LogReader(place, _without_scheme(log)), listing)

    def _log_of(self, query: RunningQuery, source: Any, number: int) -> str:
        try:
            return str(_private(source, "metadataLog").metadataPath().toString())
        except Py4JError:
            return f"{query.execution.resolvedCheckpointRoot()}/sources/{number}"

    def _options_of(self, source: Any) -> Mapping[str, str]:
        try:
            options: dict[str, str] = self._status.to_json(_private(source, "options"))
        except Py4JError:
            return {}
        return {key.lower(): value for key, value in options.items()}


def _private(source: Any, name: str) -> Any:
    field = source.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(source)


def _is_local(path: str) -> bool:
    return path.startswith("file:")


def _without_scheme(path: str) -> str:
    return _LOCAL.sub("/", path)


def make_rule(path: str, options: Mapping[str, str]) -> ListingRule:
    """Return what counts below a path by the options of its reader, their names in lower case."""
    limited = "maxfilespertrigger" in options or "maxbytespertrigger" in options
    newest_first = options.get("latestfirst", "").lower() == "true" and limited
    return ListingRule(
        path,
        options.get("recursivefilelookup", "").lower() == "true",
        options.get("pathglobfilter"),
        float("inf") if newest_first else _age(options.get("maxfileage", "7d")),
    )


def _age(written: str) -> float:
    try:
        return parse_duration(re.sub(r"(?<=\d)m$", "min", written))
    except ValueError:
        return _WEEK


class HadoopPlace:
    """A file system behind Hadoop, such as HDFS or an object store."""

    def __init__(self, jvm: Any, context: Any) -> None:
        self._jvm, self._conf = jvm, context.hadoopConfiguration()

    def statuses(self, path: str, wild_cards: bool = False) -> list[tuple[str, bool, ListedFile]]:
        """Return what is in a directory, or matches: its path, whether it is a directory, and the file."""
        with _reading(f"listing {path}"):
            place = self._jvm.org.apache.hadoop.fs.Path(path)
            system = place.getFileSystem(self._conf)
            found = system.globStatus(place) if wild_cards else system.listStatus(place)
            # one call for all: Py4J would make a call for every field of every file
            text = "" if found is None else str(self._jvm.scala.runtime.ScalaRunTime.stringOf(found))
        return parse_statuses(text)

    def names(self, directory: str) -> list[str]:
        """Return the names of the files in a directory."""
        return [path.rsplit("/", 1)[-1] for path, _, _ in self.statuses(directory)]

    def read_end(self, path: str, most_bytes: int) -> tuple[bytes, bool]:
        """Return the end of a file, and whether its beginning was left out."""
        with _reading(f"reading {path}"):
            place = self._jvm.org.apache.hadoop.fs.Path(path)
            system = place.getFileSystem(self._conf)
            begin = max(0, int(system.getFileStatus(place).getLen()) - most_bytes)
            stream = system.open(place)
            try:
                stream.seek(begin)
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)), begin > 0
            finally:
                stream.close()


def parse_statuses(text: str) -> list[tuple[str, bool, ListedFile]]:
    """Read the text of Hadoop's file statuses: path, whether a directory, and the file."""
    return [
        (path, kind == "true", ListedFile.of(int(at) / 1000, float(size or 0)))
        for path, kind, size, at in _STATUS.findall(text)
    ]


@contextmanager
def _reading(doing: str) -> Iterator[None]:
    """Translate what Hadoop raises; what is not there becomes FileNotFoundError."""
    try:
        with spark_errors(doing):
            yield
    except SparkUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, Py4JJavaError) and "FileNotFoundException" in str(cause.java_exception):
            raise FileNotFoundError(str(error)) from error
        raise


class HadoopListing:
    """Lists the files of one source through Hadoop; every directory is one call."""

    def __init__(self, place: HadoopPlace, rule: ListingRule) -> None:
        self._place, self._rule = place, rule
        self._had_directory = False

    def list_files(self, now: float) -> Mapping[str, ListedFile]:
        """Return the files by their paths; BadMetrics where the place is gone or holds too many."""
        rule = self._rule
        found: dict[str, ListedFile] = {}
        try:
            left = [rule.path] if not rule.has_wild_cards else self._take_roots(found)
            walked = 0
            while left:
                walked += 1
                for path, is_directory, file in self._place.statuses(left.pop()):
                    name = path.rsplit("/", 1)[-1]
                    if is_directory and rule.enters(name):
                        left.append(path)
                    elif not is_directory and rule.takes(name):
                        found[path] = file
                rule.check_size(len(found) + _FILES_OF_A_CALL * walked)
        except FileNotFoundError:
            raise BadMetrics(f"{rule.path} is gone: what waits to be read there is not known") from None
        return rule.drop_aged(found)

    def _take_roots(self, found: dict[str, ListedFile]) -> list[str]:
        roots = self._place.statuses(self._rule.path, wild_cards=True)
        self._rule.check_roots(len(roots), self._had_directory)
        self._had_directory = self._had_directory or any(is_directory for _, is_directory, _ in roots)
        files = {path: file for path, is_directory, file in roots if not is_directory}
        found |= {path: file for path, file in files.items() if self._rule.takes(path.rsplit("/", 1)[-1])}
        return [path for path, is_directory, _ in roots if is_directory]
