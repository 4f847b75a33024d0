"""Runs a user's script in this process, as Python would, and attaches to the Spark that it starts."""

from __future__ import annotations

import logging
import os
import runpy
import shlex
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.units.texts import read_text

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.25
INTERRUPTED = 130
SUBMIT, SHELL, PROPERTIES = "PYSPARK_SUBMIT_ARGS", "pyspark-shell", "--properties-file"


class Handle(Protocol):
    """An attached autopilot, as far as the watcher needs it."""

    def status(self) -> dict[str, Any]:
        """Return how the application stands."""

    def detach(self) -> None:
        """Stop watching it."""


class SessionWatcher:
    """Looks for a Spark session of the script's own making, and attaches to each new one once."""

    def __init__(
        self,
        find: Callable[[], Any | None],
        attach: Callable[[Any], Handle],
        say: Callable[[str], None],
        every: float = LOOK_EVERY_SECONDS,
    ) -> None:
        self._find, self._attach, self._say, self._every = find, attach, say, every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-session-watcher", daemon=True)
        self._attached: list[Handle] = []
        self._known: Any = None

    @property
    def found_spark(self) -> bool:
        """Whether any session was ever seen."""
        return self._known is not None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking, and let go of everything."""
        self._stopping.set()
        self._thread.join(timeout=5)
        for handle in self._attached:
            handle.detach()

    def statuses(self) -> list[dict[str, Any]]:
        """Return how each application stood at the end."""
        return [handle.status() for handle in self._attached]

    def look(self) -> None:
        """Attach if there is a session that was not seen before; failures are said and stop nothing."""
        try:
            session = self._find()
            if session is None or _context(session) is self._known:
                return
            # remembered before the attempt: what fails once would fail again every quarter second
            self._known = _context(session)
            self._attached.append(self._attach(session))
        except PenstockError as error:
            self._say(f"not attached: {error}; the script runs on without the autopilot")
        except Exception as error:
            log.error("attaching failed", exc_info=error)
            self._say(f"not attached: {type(error).__name__}: {error}; the script runs on without it")

    def _watch(self) -> None:
        while not self._stopping.wait(self._every):
            self.look()


def find_active_session() -> Any | None:
    """Return the session that the script has made, without importing or patching anything."""
    module = sys.modules.get("pyspark.sql.session")
    classic = getattr(getattr(module, "SparkSession", None), "_instantiatedSession", None)
    if classic is not None and getattr(classic.sparkContext, "_jsc", None) is not None:
        return classic
    module = sys.modules.get("pyspark.sql.connect.session")
    return getattr(getattr(module, "SparkSession", None), "_default_session", None)


def _context(session: Any) -> Any:
    """Return what tells one application from the next: the context, or a Connect session itself."""
    return getattr(session, "_sc", session)


@contextmanager
def submitting(shown: Mapping[str, str], hidden: Mapping[str, str]) -> Iterator[None]:
    """Let Spark know these settings when it is started; hidden ones from a file that only this user can read.

    A command line can be read by every user of the machine.
    """
    if not shown and not hidden:
        yield
        return
    with ExitStack() as life:
        environment: Mapping[str, str] = os.environ
        if hidden:
            file = life.enter_context(
                tempfile.NamedTemporaryFile("w", prefix="penstock-", suffix=".properties")
            )
            environment = {SUBMIT: add_properties(os.environ.get(SUBMIT, SHELL), hidden, Path(file.name))}
        os.environ[SUBMIT] = write_submit_arguments(shown, environment)
        yield


def write_submit_arguments(spark_conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Write PYSPARK_SUBMIT_ARGS with these settings in front of what is there already."""
    pairs = [word for key, value in spark_conf.items() for word in ("--conf", f"{key}={value}")]
    return f"{shlex.join(pairs)} {environment.get(SUBMIT, SHELL)}"


def add_properties(arguments: str, settings: Mapping[str, str], file: Path) -> str:
    """Write these settings, after those of a file of the user's own, and have Spark read this file.

    Spark reads one file: without one of the user's it is told to read its defaults all the same.
    """
    words = [part for word in shlex.split(arguments) for part in _split_option(word)]
    own, rest = "", words
    if PROPERTIES in words[:-1]:
        at = words.index(PROPERTIES)
        own, rest = read_text(Path(words[at + 1])) + "\n", words[:at] + words[at + 2 :]
    defaults = [] if PROPERTIES in words else ["--load-spark-defaults"]
    file.write_text(own + "".join(f"{key} {value}\n" for key, value in settings.items()), encoding="utf-8")
    return shlex.join([PROPERTIES, str(file), *defaults, *rest])


def _split_option(word: str) -> list[str]:
    name, sign, value = word.partition("=")
    return [name, value] if sign and name == PROPERTIES else [word]


def run_script(path: Path, arguments: Sequence[str]) -> int:
    """Run it as `python path arguments` would, and return the exit code that Python would have given."""
    sys.argv = [str(path), *arguments]
    # where Python was told to be safe (-P) it has put no directory of the caller first
    sys.path[0 : 0 if sys.flags.safe_path else 1] = [str(path.resolve().parent)]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stopped:
        return _exit_code(stopped.code)
    except KeyboardInterrupt as error:
        _report(error, path)
        return INTERRUPTED
    except BaseException as error:
        _report(error, path)
        return 1
    return 0


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _report(error: BaseException, path: Path) -> None:
    """Show the script's own traceback, without the frames through which we ran it."""
    flush_output()
    trace = _cut_trace(error.__traceback__, path)
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def flush_output() -> None:
    """Flush standard output, which the script may have closed or replaced."""
    with suppress(Exception):
        sys.stdout.flush()


def _cut_trace(trace: TracebackType | None, path: Path) -> TracebackType | None:
    wanted = path.resolve()
    step = trace
    while step is not None:
        if Path(step.tb_frame.f_code.co_filename).resolve() == wanted:
            return step
        step = step.tb_next
    # a syntax error has no frame of its own: its text already names the file and the line
    return None
