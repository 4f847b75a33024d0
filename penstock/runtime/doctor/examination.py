"""Looks at this machine, and has what it finds judged by `checks.py`; Spark is not started."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import PenstockError
from penstock.journal.ports import hide_password
from penstock.journal.store import open_journal
from penstock.runtime.control import ControlServer, ask
from penstock.runtime.doctor import checks
from penstock.runtime.doctor.checks import Check, Extra, RealTimeQuery
from penstock.runtime.doctor.cluster import check_cluster
from penstock.runtime.listening import why_not_free
from penstock.settings.model import Settings
from penstock.settings.telemetry import split_address

PATIENCE_SECONDS = 20.0
WATCH_SECONDS = 0.3
MODULES = {"postgres": "psycopg", "kafka": "confluent_kafka", "otel": "opentelemetry", "connect": "grpc"}
"""Extra → the module by which it is known."""
OWN_PYTHON = "import sys; print('{}.{}.{}'.format(*sys.version_info))"


def examine(
    settings: Settings,
    conf: Mapping[str, str],
    environment: Mapping[str, str],
    real_time: RealTimeQuery | None = None,
) -> Iterator[Check]:
    """Look at one thing after the other, as an application with these settings would meet them."""
    yield check_java(environment)
    yield checks.judge_spark(_find_version("pyspark"), _find_spark_home(environment))
    yield check_executor_python(conf, environment)
    yield check_cluster(conf, environment)
    yield checks.judge_scaling(conf, settings.bounds.most)
    if real_time is not None:
        yield checks.judge_real_time(conf, real_time, settings.bounds.most)
    yield check_runtime_directory(Path(settings.run.runtime_directory), settings.run.control_socket)
    journal, ahead = check_journal(settings.run.journal)
    yield journal
    yield checks.judge_ports(dict(_try_ports(settings)))
    yield checks.judge_clock(_watch_clocks(), ahead, settings.membership.clock_tolerance)
    yield checks.judge_extras(_list_extras(settings))


def check_java(environment: Mapping[str, str]) -> Check:
    """Ask the Java that Spark would start for its version."""
    home = environment.get("JAVA_HOME")
    place = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    said = _run([place, "-version"], environment) if place else None
    return checks.judge_java(place or "the PATH", said)


def check_executor_python(conf: Mapping[str, str], environment: Mapping[str, str]) -> Check:
    """Ask the Python that executors would start for its version."""
    named = conf.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON") or "python3"
    said = _run([named, "-c", OWN_PYTHON], environment)
    elsewhere = not conf.get("spark.master", "local").startswith("local")
    return checks.judge_executor_python(sys.version_info[:2], named, said and said.strip(), elsewhere)


def check_runtime_directory(directory: Path, with_socket: bool) -> Check:
    """Listen on a control socket there, as an application would, and ask it."""
    name = "runtime directory"
    if not with_socket:
        return Check(name, "control_socket is off: commands do not reach an application")
    try:
        server = ControlServer(directory, f"doctor-{os.getpid()}", lambda command, request: {})
        with closing(server):
            ask(server.path, "hello")
    except (PenstockError, OSError) as error:
        return Check(name, str(error), "let runtime_directory name a directory of your own with mode 0700")
    return Check(name, f"{directory} takes a control socket, mode {_show_mode(directory)}")


def check_journal(place: str) -> tuple[Check, float | None]:
    """Open the journal and write to it; return also how far our clock is ahead of its database's."""
    shown = hide_password(place)
    try:
        with closing(open_journal(place)) as journal, journal.database.writing() as connection:
            found = f"{journal.database.name} opens and can be written"
            ahead = None
            if connection.dialect.name == "postgresql":
                before = time.time()
                theirs = connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar()
                ahead = (before + time.time()) / 2 - float(theirs or 0)
    except (PenstockError, OSError) as error:
        return Check(
            "journal", str(error), f"let journal name a place that you may write to, not {shown}"
        ), None
    file = Path(place)
    mode = f", mode {_show_mode(file)}" if ahead is None and file.is_file() else ""
    return Check("journal", f"{found}{mode}"), ahead


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_spark_home(environment: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return SPARK_HOME and the version of its jars; None where Spark is PySpark's own."""
    home = environment.get("SPARK_HOME")
    if not home:
        return None
    jars = sorted((Path(home) / "jars").glob("spark-core_*.jar"))
    return home, jars[0].stem.rpartition("-")[2] if jars else None


def _try_ports(settings: Settings) -> Iterator[tuple[str, str | None]]:
    addresses = {"metrics": settings.metrics.address, "dashboard": settings.dashboard.address}
    for name, address in addresses.items():
        if address:
            yield f"{name} {address}", why_not_free(*split_address(address))
    reports = settings.executor_metrics
    if reports.mode != "off" and reports.port:
        yield (
            f"executor_metrics_port {reports.port}",
            why_not_free("0.0.0.0", reports.port, socket.SOCK_DGRAM),
        )


def _watch_clocks() -> float:
    """Return by how much the wall clock went faster than the monotonic one in a moment."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(WATCH_SECONDS)
    return (time.time() - wall) - (time.monotonic() - steady)


def _list_extras(settings: Settings) -> Iterator[Extra]:
    fleet = settings.membership.report_to or ""
    needs = {
        "postgres": "a journal in PostgreSQL" if settings.run.journal.startswith("postgresql") else None,
        "kafka": "report_to" if fleet.startswith("kafka://") else None,
        "otel": "otlp_endpoint" if settings.traces.endpoint else None,
    }
    for name, module in MODULES.items():
        yield Extra(name, find_spec(module) is not None, needs.get(name))


def _show_mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


def _run(words: list[str], environment: Mapping[str, str]) -> str | None:
    """Return all that a command says; None where it does not run."""
    try:
        ended = subprocess.run(
            words,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return ended.stdout + ended.stderr if ended.returncode == 0 else None
