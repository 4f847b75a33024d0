"""`penstock run`: a user's unchanged script, with the autopilot attached to whatever Spark it starts."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.commands.config import Conf, Config, ObserveOnly, PolicyName, parse_conf
from penstock.commands.printing import Json, json_line, print_json, say
from penstock.errors import BadInput
from penstock.runtime.launch import (
    SessionWatcher,
    find_active_session,
    flush_output,
    run_script,
    submitting,
)
from penstock.view.foreign_text import PlainFormatter

if TYPE_CHECKING:
    from penstock.settings.model import Settings

ONLY_OBSERVES = (
    "--allow-restart: an autopilot that only observes restarts nothing: leave out --observe, "
    "or set `mode: act`"
)

GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started the JVM, and this Python as the JVM's child."""
SUBMITTED = "spark-submit has started Spark's JVM already"


def run(
    script: Annotated[Path, typer.Argument(metavar="JOB.PY", help="The PySpark script.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its own arguments.")
    ] = None,
    policy: PolicyName = None,
    config: Config = None,
    conf: Conf = None,
    observe: ObserveOnly = False,
    allow_restart: Annotated[
        bool, typer.Option("--allow-restart", help="Restart it for new memory or cores, from its checkpoint.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run an unchanged PySpark script under the autopilot.

    It ends with the script's own exit code. With --json the script's standard output goes to standard error.
    """
    _check_submitted(os.environ, conf, allow_restart)
    spark_conf = parse_conf(conf or ())
    chosen = {**({"policy": policy} if policy else {}), **({"mode": "observe"} if observe else {})}
    if not script.is_file():
        raise BadInput(f"{script}: no such file")
    settings = check_settings(config, spark_conf, chosen)
    if allow_restart:
        if settings.run.only_observes:
            raise BadInput(ONLY_OBSERVES)
        options = _repeat_options(policy, config, conf)
        result = supervise(script, arguments or [], options, spark_conf, settings, as_json)
        if as_json:
            print_json(result)
        raise typer.Exit(result["exit_code"])
    shown, hidden = open_listener(settings, spark_conf)
    speak_up()
    with submitting({**spark_conf, **shown}, hidden):
        raise typer.Exit(_run_attached(script, arguments or [], config, chosen, as_json))


def _check_submitted(environment: Mapping[str, str], conf: list[str] | None, allow_restart: bool) -> None:
    """Refuse options that mean nothing to a JVM that is up."""
    if GATEWAY not in environment:
        return
    if allow_restart:
        raise BadInput(
            f"--allow-restart: {SUBMITTED}, and nobody could start another: leave out spark-submit; "
            "`penstock run --conf spark.master=MASTER` submits by itself, in client mode"
        )
    if conf:
        raise BadInput(f"--conf: {SUBMITTED}: give {', '.join(conf)} to spark-submit, before the script")


def _repeat_options(policy: str | None, config: Path | None, conf: list[str] | None) -> list[str]:
    """Write the same options again, for the driver."""
    named = [("--policy", policy), ("--config", str(config) if config else None)]
    words = [word for name, value in named if value for word in (name, value)]
    return [*words, *(word for pair in conf or () for word in ("--conf", pair))]


def supervise(
    script: Path,
    arguments: Sequence[str],
    options: Sequence[str],
    given: Mapping[str, str],
    settings: Settings,
    quiet: bool,
) -> dict[str, Any]:
    """Run the script until it ends by itself; the result has its exit code and the restarts.

    `options` are those of `penstock run` for the driver, `given` the Spark settings among them: these are the
    user's word, and outrank what an earlier run was found to need. With `quiet` the driver's standard output
    goes to standard error.
    """
    from penstock.act.restart.job_lease import JobLease
    from penstock.act.restart.job_lock import JobLock
    from penstock.act.restart.shell import Job, Supervisor
    from penstock.decide.sage.sizes import sizing_settings
    from penstock.journal.store import journal_at

    def command(found: Mapping[str, str]) -> list[str]:
        sizes = sizing_settings(found)
        pairs = [word for key, value in sizes.items() for word in ("--conf", f"{key}={value}")]
        # -P: nothing is imported from the current directory, which may be anybody's
        python = [sys.executable, "-P", "-m", "penstock.cli"]
        return [*python, "run", *options, *pairs, str(script), *arguments]

    # a journal that is away keeps no job from running
    with closing(journal_at(settings.run.journal)) as journal:
        output = sys.stderr.fileno() if quiet else None
        job = Job(name_job(script, arguments), command, output, dict(given), settings.restart.rules)
        lock = JobLock(Path(settings.run.runtime_directory), job.name)
        lease = JobLease(journal.leases, job.name)
        supervisor = Supervisor(job, lock, journal, settings.restart, say, lease=lease)
        code = supervisor.run()
    return {
        "script": str(script),
        "exit_code": code,
        "applications": supervisor.statuses,
        "restarts": supervisor.restarts,
    }


def name_job(script: Path, arguments: Sequence[str]) -> str:
    """Name a job so that its next run is known to be the same: the script with its arguments."""
    return shlex.join([str(script.resolve()), *arguments])


def _tell_supervisor(watcher: SessionWatcher) -> None:
    from penstock.act.restart.channel import find_own_channel

    channel = find_own_channel()
    if channel is not None:
        channel.say(kind="statuses", statuses=watcher.statuses())


def check_settings(config: Path | None, spark_conf: Mapping[str, str], chosen: Mapping[str, str]) -> Settings:
    """Read the settings of a run; complain before it starts, not when Spark is already up."""
    from penstock.plugins.finding import find_policy
    from penstock.settings.model import load_settings

    settings = load_settings(config, os.environ, spark_conf, chosen)
    find_policy(settings.run.policy).check_place("run")
    return settings


def open_listener(settings: Settings, spark_conf: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Open the port to which executors report, if asked for; say what Spark must be told, and in secret."""
    if settings.executor_metrics.mode == "off":
        return {}, {}
    from penstock.observe.executors.metrics import address_for, listener_on, metrics_conf, secret_conf

    host = address_for(spark_conf.get("spark.master", "local"), os.environ.get("SPARK_LOCAL_IP"))
    listener = listener_on(host, settings.executor_metrics.port)
    conf = metrics_conf(listener.host, listener.port, settings.executor_metrics.every)
    port = {"spark.penstock.executor_metrics_port": str(listener.port)}
    return {**conf, **port}, secret_conf(listener.secret)


def _run_attached(
    script: Path, arguments: list[str], config: Path | None, chosen: Mapping[str, str], as_json: bool
) -> int:
    """Run the script with an autopilot for each session that it starts; return its exit code."""
    from penstock.act.restart.job_lock import hold_inherited_lock
    from penstock.runtime.attach import attach

    hold_inherited_lock()

    attach_to = partial(attach, config=config, settings=chosen)
    watcher = SessionWatcher(find=find_active_session, attach=attach_to, say=say)
    kept = set_stdout_aside() if as_json else None
    watcher.start()
    try:
        code = run_script(script, arguments)
    finally:
        watcher.stop()
        if not watcher.found_spark:
            say(f"{script} never started Spark, so there was nothing to attach to")
    _tell_supervisor(watcher)
    if kept is not None:
        result = {"script": str(script), "exit_code": code, "applications": watcher.statuses()}
        with os.fdopen(kept, "wb") as output:
            output.write(json_line(result))
    return code


def speak_up() -> None:
    """Let people see what the autopilot does, without touching the script's own logging."""
    logger = logging.getLogger("penstock")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter("penstock: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def set_stdout_aside() -> int:
    """Send file descriptor 1 to standard error, since the script's JVM writes there too; returns the old one.

    For good: threads and exit handlers of the script still print when our object is already out.
    """
    flush_output()
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept
