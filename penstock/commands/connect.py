"""`penstock connect-server`: a driver that serves Spark Connect, with the autopilot attached to it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.commands.config import Conf, Config, ObserveOnly, PolicyName, parse_conf
from penstock.commands.ending import interruptible
from penstock.commands.printing import Json, print_json, say
from penstock.commands.run import check_settings, open_listener, set_stdout_aside, speak_up
from penstock.errors import ActionFailed, PenstockError
from penstock.runtime.connect import (
    ADDRESS_KEY,
    TOKEN_KEY,
    TOKEN_VARIABLE,
    choose_token,
    complete_conf,
    keep_token,
    name_address,
    read_port,
    require_free,
)
from penstock.runtime.launch import flush_output, submitting
from penstock.runtime.listening import is_loopback

NAME = "connect-server"
LOOK_EVERY_SECONDS = 1.0
STOP_SECONDS = 10.0
"""How long a query may take to come to a batch after which it can go on elsewhere."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What the server is to be, checked before Spark is up."""

    conf: Mapping[str, str]
    token: str
    token_is_given: bool
    runtime_directory: Path


def connect_server(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Where to listen; 0 takes a free port.  [default: 15002]"),
    ] = None,
    policy: PolicyName = None,
    config: Config = None,
    conf: Conf = None,
    observe: ObserveOnly = False,
    as_json: Json = False,
) -> None:
    """Serve Spark Connect with the autopilot attached.

    It says where, once clients can come, and runs until it is stopped (SIGTERM, control-C). Their streams are
    sized; all of them end with it.
    """
    spark_conf = parse_conf(conf or ())
    chosen = {**({"policy": policy} if policy else {}), **({"mode": "observe"} if observe else {})}
    settings = check_settings(config, spark_conf, chosen)
    complete = complete_conf(spark_conf, port)
    token, given = choose_token(complete, os.environ)
    require_free(complete[ADDRESS_KEY], read_port(complete), "choose another --port, or 0 for a free one")
    shown, hidden = open_listener(settings, spark_conf)
    public = {key: value for key, value in complete.items() if key != TOKEN_KEY}
    serving = Serving(public, token, given, Path(settings.run.runtime_directory))
    speak_up()
    kept = set_stdout_aside() if as_json else None
    try:
        with interruptible(), submitting({**public, **shown}, {**hidden, TOKEN_KEY: token}):
            result = _serve(serving, config, chosen)
    finally:
        if kept is not None:
            # for the result, or for what went wrong
            flush_output()
            os.dup2(kept, 1)
            os.close(kept)
    if as_json:
        print_json(result)


def _serve(serving: Serving, config: Path | None, chosen: Mapping[str, object]) -> dict[str, Any]:
    """Serve until somebody ends it; return how the application stood then."""
    from penstock.observe.spark_session import start_session, stop_session
    from penstock.observe.spark_status import SparkStatus
    from penstock.runtime.assembly import make_patient_check
    from penstock.runtime.attach import attach
    from penstock.runtime.spark_connect import ConnectServer

    # this driver's own session is a classic one, wherever clients of this user are told to go
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        os.environ.pop(name, None)
    if serving.conf.get("spark.master", "local").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    name = serving.conf.get("spark.app.name", NAME)
    result: dict[str, Any] = {"address": None, "applications": []}
    with ExitStack() as life:
        try:
            spark = start_session(name, {"spark.api.mode": "classic"}, master=None)
            life.callback(stop_session, spark)
            # Spark has set a handler that cancels all jobs
            signal.signal(signal.SIGINT, signal.default_int_handler)
            handle = attach(spark, config=config, settings=chosen)
            life.callback(handle.detach)
            life.callback(_stop_queries, spark)
            server = life.enter_context(closing(ConnectServer(spark)))
            result["address"] = _announce(serving, server.port, life)
            alive = make_patient_check(lambda: spark.sparkContext._jsc is None, SparkStatus(spark).stopped)
            while alive():
                time.sleep(LOOK_EVERY_SECONDS)
        except KeyboardInterrupt:
            say("ending, with all queries of all clients")
            result["applications"] = [handle.status()] if result["address"] else []
            return result
    raise ActionFailed("Spark has ended, and the server with it")


def _stop_queries(spark: Any) -> None:
    """Stop the queries of all clients between two batches, before Spark ends beneath them."""
    from penstock.act.restart.spark_driver import SparkDriver

    try:
        SparkDriver(spark, STOP_SECONDS).stop_after_batch()
    except PenstockError as error:
        say(f"queries were not stopped: {error}")


def _announce(serving: Serving, port: int, life: ExitStack) -> str:
    """Say where clients come in, and with what; return the address."""
    host = serving.conf[ADDRESS_KEY]
    address = name_address(host, port)
    if serving.token_is_given:
        how = "clients need the token that you gave"
    else:
        file = life.enter_context(keep_token(serving.runtime_directory, port, serving.token))
        how = f"clients need {TOKEN_VARIABLE}=$(cat {file})"
    if not is_loopback(host):
        say(f"warning: {host} can be reached from other machines, and nothing is encrypted: put TLS in front")
    say(f"serving Spark Connect at {address}; {how}")
    return address
