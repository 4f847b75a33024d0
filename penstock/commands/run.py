"""`penstock run`: a user's unchanged script, with the autopilot attached to whatever Spark it starts."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.commands.printing import Json, json_line, print_json, reported, say
from penstock.commands.setup import Conf, parse_conf
from penstock.errors import BadInput
from penstock.launch import SessionWatcher, active_session, flush_output, run_script, submit_arguments

if TYPE_CHECKING:
    from penstock.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Add this command; what follows the script belongs to the script, options too."""
    app.command("run", context_settings={"allow_interspersed_args": False})(run)


@reported
def run(
    script: Annotated[Path, typer.Argument(metavar="JOB.PY", help="The PySpark script.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its own arguments.")] = None,
    policy: Annotated[str | None, typer.Option(help="The policy that proposes sizes.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The settings file.")] = None,
    conf: Conf = None,
    observe: Annotated[bool, typer.Option("--observe", help="Watch and decide, change nothing.")] = False,
    allow_restart: Annotated[
        bool, typer.Option("--allow-restart", help="Restart it for new memory or cores, from its checkpoint.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run an unchanged PySpark script with the autopilot attached; ends with the script's own exit code.

    With --json the script's standard output goes to standard error.
    """
    spark_conf = parse_conf(conf or ())
    chosen = _chosen(policy, observe)
    settings = _check(script, config, spark_conf, chosen)
    if allow_restart:
        options = _options(policy, config, conf)
        _supervised(script, arguments or [], options, spark_conf, settings, as_json)
    spark_conf |= _reporting(settings, spark_conf)
    if spark_conf:
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(spark_conf, os.environ)
    _speak_up()
    watcher = _watcher(config, chosen)
    kept = _set_stdout_aside() if as_json else None
    code = _watched(watcher, script, arguments or [])
    _tell_supervisor(watcher)
    if kept is not None:
        with os.fdopen(kept, "wb") as output:
            result = {"script": str(script), "exit_code": code, "applications": watcher.statuses()}
            output.write(json_line(result))
    raise typer.Exit(code)


def _options(policy: str | None, config: Path | None, conf: list[str] | None) -> list[str]:
    """The same options again, for the driver."""
    named = [("--policy", policy), ("--config", str(config) if config else None)]
    words = [word for name, value in named if value for word in (name, value)]
    return [*words, *(word for pair in conf or () for word in ("--conf", pair))]


def _supervised(
    script: Path,
    arguments: list[str],
    options: list[str],
    spark_conf: Mapping[str, str],
    settings: Settings,
    as_json: bool,
) -> None:
    from penstock.commands.supervised import supervise

    if settings.mode == "observe":
        raise BadInput("--allow-restart: this autopilot only observes (--observe, or the setting mode)")
    result = supervise(script, arguments, options, spark_conf, settings, as_json)
    if as_json:
        print_json(result)
    raise typer.Exit(result["exit_code"])


def _tell_supervisor(watcher: SessionWatcher) -> None:
    from penstock.supervise.channel import own_channel

    channel = own_channel()
    if channel is not None:
        channel.say(kind="statuses", statuses=watcher.statuses())


def _chosen(policy: str | None, observe: bool) -> dict[str, str]:
    return {**({"policy": policy} if policy else {}), **({"mode": "observe"} if observe else {})}


def _check(
    script: Path, config: Path | None, spark_conf: Mapping[str, str], chosen: Mapping[str, str]
) -> Settings:
    """Complain before the script starts, not when Spark is already up."""
    from penstock.decide.registry import policy_entry
    from penstock.settings import load_settings

    if not script.is_file():
        raise BadInput(f"{script}: no such file")
    settings = load_settings(config, os.environ, spark_conf, chosen)
    policy_entry(settings.policy)
    return settings


def _reporting(settings: Settings, spark_conf: Mapping[str, str]) -> dict[str, str]:
    """Open the port to which executors report, if asked for, and say what Spark must be told of it."""
    if settings.executor_metrics == "off":
        return {}
    from penstock.observe.executor_metrics import metrics_conf
    from penstock.observe.metrics_listener import address_for, listener_on

    host = address_for(spark_conf.get("spark.master", "local"), os.environ.get("SPARK_LOCAL_IP"))
    listener = listener_on(host, settings.executor_metrics_port)
    conf = metrics_conf(listener.host, listener.port, settings.executor_metrics_every)
    return {**conf, "spark.penstock.executor_metrics_port": str(listener.port)}


def _watcher(config: Path | None, chosen: Mapping[str, str]) -> SessionWatcher:
    from penstock.attach import attach

    return SessionWatcher(
        find=active_session, attach=lambda spark: attach(spark, config=config, settings=chosen), say=say
    )


def _watched(watcher: SessionWatcher, script: Path, arguments: list[str]) -> int:
    watcher.start()
    try:
        return run_script(script, arguments)
    finally:
        watcher.stop()
        if not watcher.found_spark:
            say(f"{script} never started Spark, so there was nothing to attach to")


def _speak_up() -> None:
    """Let people see what the autopilot does, without touching the script's own logging."""
    logger = logging.getLogger("penstock")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("penstock: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _set_stdout_aside() -> int:
    """Send file descriptor 1 to standard error, since the script's JVM writes there too; returns the old one.

    For good: threads and exit handlers of the script still print when our object is already out.
    """
    flush_output()
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept
