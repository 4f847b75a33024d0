"""Parse Spark's event log line by line into an `ApplicationLog`; what cannot be read is counted."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import orjson

from penstock.diagnose.log.application import (
    RUNNING,
    SUCCEEDED,
    TASK_COLUMNS,
    ApplicationLog,
    Batch,
    Column,
    Executor,
    Fields,
    SparkJob,
    Stage,
    StageKey,
    Tasks,
    read_logged_metrics,
)
from penstock.diagnose.log.checks import count_missing_tasks, explain_old_version, leave_out_stray_times
from penstock.diagnose.log.failures import (
    TaskFailure,
    read_job_failure,
    read_task_failure,
    shorten_message,
)
from penstock.diagnose.log.fields import (
    END_OF_TIMES,
    drop_accumulables,
    is_of_a_good_task,
    name_chain,
    read_integers,
    read_name,
    read_outcome,
    sum_sql_times,
)
from penstock.diagnose.log.files import LogFiles, is_plain, read_file_lines
from penstock.diagnose.log.ranges import LARGE_BYTES, LogPart, cut_ranges, feed_in_parts
from penstock.diagnose.log.sql_events import CachedBlocks, SqlEvents, read_progress
from penstock.errors import BadInput

_MOST_CORES = 100_000
"""Of one executor; a larger number is an error, and the cores count as unknown."""
_PREFIX = b'{"Event":"'
_HANDLERS = {
    "SparkListenerLogStart": "_log_start",
    "SparkListenerApplicationStart": "_application_start",
    "SparkListenerApplicationEnd": "_application_end",
    "SparkListenerEnvironmentUpdate": "_environment_update",
    "SparkListenerExecutorAdded": "_executor_added",
    "SparkListenerExecutorRemoved": "_executor_removed",
    "SparkListenerJobStart": "_job_start",
    "SparkListenerJobEnd": "_job_end",
    "SparkListenerStageSubmitted": "_stage_submitted",
    "SparkListenerStageCompleted": "_stage_completed",
    "SparkListenerTaskStart": "_task_start",
    "SparkListenerTaskEnd": "_task_end",
    "SparkListenerBlockUpdated": "_block_updated",
    "SparkListenerUnpersistRDD": "_rdd_unpersisted",
    "StreamingQueryListener$QueryStartedEvent": "_query_started",
    "StreamingQueryListener$QueryProgressEvent": "_query_progress",
}
_SQL_HANDLERS = {
    "SparkListenerSQLExecutionStart": "start",
    "SparkListenerSQLExecutionEnd": "end",
    "SparkListenerSQLAdaptiveExecutionUpdate": "update",
    "SparkListenerDriverAccumUpdates": "count",
}
_WANTED = frozenset(name.encode() for name in (*_HANDLERS, *_SQL_HANDLERS))


class EventLogReader:
    """A parser that is fed the lines of one log in order and can build the log so far at any time.

    With `begun` it continues after the lines that gave that log.
    """

    def __init__(self, begun: ApplicationLog | None = None) -> None:
        self._columns = {name: array("q") for name in TASK_COLUMNS}
        self._rows: dict[int, int] = {}
        self._executor_places: dict[str, int] = {}
        self._stages: dict[StageKey, Stage] = {}
        self._jobs: dict[int, SparkJob] = {}
        self._executors: dict[str, Executor] = {}
        self._sql, self._cached = SqlEvents(self._note_time), CachedBlocks()
        self._batches: list[Batch] = []
        self._failures: list[TaskFailure] = []
        self._properties: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._warnings: Counter[str] = Counter()
        self._facts = {"App ID": "", "App Name": "", "Spark Version": ""}
        self._start, self._end, self._latest, self._line = -1, -1, -1, 0
        self._handlers: dict[str, Callable[[Fields], None]] = {
            event: getattr(self, method) for event, method in _HANDLERS.items()
        }
        self._sql_handlers: dict[str, Callable[[Fields, int], None]] = {
            event: getattr(self._sql, method) for event, method in _SQL_HANDLERS.items()
        }
        if begun is not None:
            self._resume(begun)

    def _resume(self, log: ApplicationLog) -> None:
        for name, column in self._columns.items():
            column.extend(log.tasks[name].tolist())
        self._rows = {task: row for row, task in enumerate(log.tasks["task"].tolist())}
        self._executor_places = {name: place for place, name in enumerate(log.tasks.executors)}
        self._stages, self._jobs = dict(log.stages), dict(log.jobs)
        self._executors, self._batches = dict(log.executors), list(log.batches)
        self._sql.resume({one.execution: one for one in log.executions})
        self._names, self._warnings = dict(log.query_names), Counter(log.warnings)
        self._failures, self._properties = list(log.failures), dict(log.properties)
        self._facts = {"App ID": log.application, "App Name": log.name, "Spark Version": log.spark_version}
        self._start, self._latest, self._line = log.start, log.end, log.lines
        self._cached = CachedBlocks(log.evictions)

    def feed(self, lines: Iterable[bytes]) -> None:
        """Parse these lines."""
        for line in lines:
            self._line += 1
            if line:
                self._parse(line)

    def read_part(self, lines: Iterable[bytes]) -> LogPart:
        """Parse the good tasks of a range of a log; other lines are returned with what was read."""
        others = []
        for line in lines:
            self._line += 1
            if line and is_of_a_good_task(line):
                self._parse(line)
            elif line and is_wanted(line):
                others.append((self._line, line))
        columns = {name: np.array(column, dtype=np.int64) for name, column in self._columns.items()}
        executors, warnings = tuple(self._executor_places), dict(self._warnings)
        return LogPart(self._line, self._latest, columns, executors, others, warnings)

    def take_part(self, part: LogPart) -> None:
        """Continue with a range that another reader has read; what is told of a task later holds."""
        before = self._line
        places = [
            self._executor_places.setdefault(name, len(self._executor_places)) for name in part.executors
        ]
        columns = dict(part.columns)
        columns["executor"] = np.array(places, dtype=np.int64)[columns["executor"]]
        columns["started"] = columns["started"] + before
        columns["ended"] = np.where(columns["ended"] >= 0, columns["ended"] + before, -1)
        self._join_tasks(columns)
        self._latest = max(self._latest, part.latest)
        self._warnings.update(part.warnings)
        for number, line in part.others:
            self._line = before + number
            self._parse(line)
        self._line = before + part.lines

    def _join_tasks(self, columns: Mapping[str, Column]) -> None:
        tasks = columns["task"].tolist()
        rows = np.array([self._rows.get(task, -1) for task in tasks], dtype=np.int64)
        ended = (rows >= 0) & (columns["ended"] >= 0)
        for name, column in self._columns.items():
            if name != "started":
                np.frombuffer(column, dtype=np.int64)[rows[ended]] = columns[name][ended]
            column.frombytes(columns[name][rows < 0].tobytes())
        new = (task for task, row in zip(tasks, rows.tolist(), strict=True) if row < 0)
        self._rows.update(zip(new, range(len(self._rows), len(self._columns["task"])), strict=True))

    def _parse(self, line: bytes) -> None:
        if not is_wanted(line):
            return
        try:
            event = orjson.loads(drop_accumulables(line))
            name = str(event["Event"]).rpartition(".")[2]
            if handler := self._handlers.get(name):
                handler(event)
            elif handler_of_sql := self._sql_handlers.get(name):
                handler_of_sql(event, self._line)
        except orjson.JSONDecodeError:
            self._warnings["lines that are cut or are not JSON"] += 1
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self._warnings["events with missing or bad fields"] += 1

    def _note_time(self, time: int) -> int:
        if not -1 <= time < END_OF_TIMES:
            raise ValueError(f"{time} is no time in milliseconds")
        self._latest = max(self._latest, time)
        return time

    def _log_start(self, event: Fields) -> None:
        self._facts["Spark Version"] = read_name(event.get("Spark Version", ""))

    def _application_start(self, event: Fields) -> None:
        self._start = self._note_time(int(event["Timestamp"]))
        self._facts |= {name: read_name(event.get(name, "")) for name in ("App ID", "App Name")}
        if event.get("App Attempt ID"):
            self._facts["App Name"] += f", attempt {read_name(event['App Attempt ID'])}"

    def _application_end(self, event: Fields) -> None:
        self._end = self._note_time(int(event["Timestamp"]))

    def _environment_update(self, event: Fields) -> None:
        given = {**(event.get("System Properties") or {}), **(event.get("Spark Properties") or {})}
        kept = {str(key): str(value)[:1000] for key, value in given.items()}
        self._properties |= {
            key: value for key, value in kept.items() if key.startswith(("spark.", "sun.java.command"))
        }

    def _executor_added(self, event: Fields) -> None:
        executor = self._find_executor(read_name(event["Executor ID"]))
        cores = int(event["Executor Info"].get("Total Cores") or 0)
        executor.cores = cores if 0 <= cores < _MOST_CORES else 0
        executor.host = read_name(event["Executor Info"].get("Host", ""))
        executor.added, executor.line = self._note_time(int(event["Timestamp"])), self._line

    def _executor_removed(self, event: Fields) -> None:
        executor = self._find_executor(read_name(event["Executor ID"]))
        executor.removed = self._note_time(int(event["Timestamp"]))
        executor.reason = shorten_message(str(event.get("Removed Reason") or ""))

    def _find_executor(self, name: str) -> Executor:
        return self._executors.setdefault(name, Executor(name))

    def _job_start(self, event: Fields) -> None:
        properties = event.get("Properties") or {}
        self._jobs[int(event["Job ID"])] = SparkJob(
            job=int(event["Job ID"]),
            started=self._note_time(int(event["Submission Time"])),
            line=self._line,
            stages=read_integers(event.get("Stage IDs") or ()),
            query=read_name(properties.get("sql.streaming.queryId", "")),
            execution=int(properties.get("spark.sql.execution.id") or -1),
        )
        # stages that reuse the output of an earlier job are skipped, and no other event names them
        for information in event.get("Stage Infos") or ():
            self._update_stage(information)

    def _job_end(self, event: Fields) -> None:
        job = self._jobs.get(int(event["Job ID"]))
        if job:
            job.ended, job.ended_at_line = self._note_time(int(event["Completion Time"])), self._line
            job.failure = read_job_failure(event)

    def _update_stage(self, information: Fields) -> Stage:
        key = int(information["Stage ID"]), int(information.get("Stage Attempt ID", 0))
        stage = self._stages.setdefault(key, Stage(*key))
        stage.name = read_name(information.get("Stage Name", stage.name))
        stage.tasks = int(information.get("Number of Tasks", stage.tasks))
        stage.parents = read_integers(information.get("Parent IDs") or stage.parents)
        rdds = information.get("RDD Info") or ()
        stage.chain = stage.chain or name_chain(rdds)
        self._cached.read_names(rdds)
        # Spark lists the stage's own RDD first, then those it is computed from
        stage.rdd = int(rdds[0]["RDD ID"]) if rdds else stage.rdd
        return stage

    def _stage_submitted(self, event: Fields) -> None:
        stage = self._update_stage(event["Stage Info"])
        stage.submitted = self._note_time(int(event["Stage Info"].get("Submission Time", -1)))
        stage.submitted_at_line = self._line

    def _stage_completed(self, event: Fields) -> None:
        information = event["Stage Info"]
        stage = self._update_stage(information)
        stage.completed = self._note_time(int(information.get("Completion Time", -1)))
        stage.completed_at_line = self._line
        stage.failure = shorten_message(str(information.get("Failure Reason") or ""))
        if stage.submitted < 0:
            stage.submitted = int(information.get("Submission Time", -1))

    def _find_row(self, event: Fields, information: Fields) -> int:
        task = int(information["Task ID"])
        if task in self._rows:
            return self._rows[task]
        executor = self._executor_places.setdefault(
            read_name(information["Executor ID"]), len(self._executor_places)
        )
        known = {
            "task": task,
            "stage": int(event["Stage ID"]),
            "attempt": int(event.get("Stage Attempt ID", 0)),
            "partition": int(information.get("Index", -1)),
            "executor": executor,
            "launch": self._note_time(int(information["Launch Time"])),
            "finish": -1,
            "getting_result": -1,
            "speculative": int(bool(information.get("Speculative"))),
            "outcome": RUNNING,
            "started": self._line,
            "ended": -1,
        }
        # convert all values before the first is stored: a broken event must not leave part of a row
        values = array("q", [known.get(name, 0) for name in self._columns])
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        row = self._rows[task] = len(self._rows)
        return row

    def _task_start(self, event: Fields) -> None:
        self._find_row(event, event["Task Info"])

    def _task_end(self, event: Fields) -> None:
        information, columns = event["Task Info"], self._columns
        finish = int(information["Finish Time"])
        row = self._find_row(event, information)
        failure = read_task_failure(event, finish)
        if failure:
            self._failures.append(failure)
            if columns["outcome"][row] == SUCCEEDED:
                return  # its output was lost later; what it took has been read
        columns["finish"][row] = self._note_time(finish)
        columns["ended"][row] = self._line
        columns["getting_result"][row] = min(int(information.get("Getting Result Time") or -1), finish)
        columns["outcome"][row] = read_outcome(event, information)
        metrics = event.get("Task Metrics")
        if not metrics:
            self._warnings["finished tasks without metrics"] += 1
            return
        self._cached.update_many(metrics.get("Updated Blocks") or ())
        for name, value in read_logged_metrics(metrics).items():
            columns[name][row] = value
        for name, value in sum_sql_times(information.get("Accumulables") or ()).items():
            columns[name][row] = value

    def _block_updated(self, event: Fields) -> None:
        self._cached.update(event)

    def _rdd_unpersisted(self, event: Fields) -> None:
        self._cached.forget(event)

    def _query_started(self, event: Fields) -> None:
        self._names[read_name(event["id"])] = read_name(event.get("name") or str(event["id"])[:8])

    def _query_progress(self, event: Fields) -> None:
        progress, batch = read_progress(event, self._line)
        self._names.setdefault(batch.query, read_name(progress.get("name") or batch.query[:8]))
        self._note_time(batch.start + int(batch.milliseconds))
        self._batches.append(batch)

    def build_log(self) -> ApplicationLog:
        """Return the application as the lines so far describe it."""
        columns = {name: np.array(column, dtype=np.int64) for name, column in self._columns.items()}
        launched = columns["launch"]
        first = self._start if self._start >= 0 else int(launched.min()) if len(launched) else self._latest
        log = ApplicationLog(
            application=self._facts["App ID"],
            name=self._facts["App Name"],
            spark_version=self._facts["Spark Version"],
            start=first,
            end=max(self._latest, self._end),
            is_complete=self._end >= 0,
            tasks=Tasks(columns, tuple(self._executor_places)),
            stages=dict(self._stages),
            jobs=dict(self._jobs),
            executors=dict(self._executors),
            executions=tuple(self._sql.executions.values()),
            batches=tuple(self._batches),
            query_names=dict(self._names),
            lines=self._line,
            warnings=dict(self._warnings),
            failures=tuple(self._failures),
            properties=dict(self._properties),
            evictions=dict(self._cached.evictions),
        )
        return leave_out_stray_times(log, self._start, self._end)


def is_wanted(line: bytes) -> bool:
    """Return whether the line may matter, by its event's name: most of a large log need no parsing."""
    if not line.startswith(_PREFIX):
        return True
    name = line[len(_PREFIX) : line.find(b'"', len(_PREFIX))]
    return name.rpartition(b".")[2] in _WANTED


def read_log(lines: Iterable[bytes]) -> ApplicationLog:
    """Return the application that these lines of an event log describe."""
    reader = EventLogReader()
    reader.feed(lines)
    return count_missing_tasks(reader.build_log())


def read_application(files: LogFiles, processes: int = 1) -> ApplicationLog:
    """Return the application that a log on disk describes, read by so many processes; refuse other files."""
    reader = EventLogReader()
    for file in files.files:
        if processes > 1 and file.stat().st_size >= LARGE_BYTES and is_plain(file):
            feed_in_parts(reader, file, cut_ranges(file), processes)
        else:
            reader.feed(read_file_lines(file))
    log = count_missing_tasks(reader.build_log())
    if not log.lines or (log.start < 0 and not len(log.tasks)):
        raise BadInput(f"{files.path}: is not a Spark event log, or holds no event yet")
    if refusal := explain_old_version(log.spark_version):
        raise BadInput(f"{files.path}: {refusal}")
    return log
