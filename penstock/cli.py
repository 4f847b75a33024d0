"""The `penstock` command: all commands under one name."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from penstock import __version__
from penstock.commands import (
    config,
    connect,
    dashboard,
    diagnosis,
    doctor,
    fleet,
    journal,
    laboratory,
    live,
    metrics,
    offline,
    pipeline,
    policies,
    recommend,
    report,
    run,
)
from penstock.commands.printing import DONE, FAILED, complain, report_bad_usage, report_errors
from penstock.view.foreign_text import PlainFormatter

INTERRUPTED = 130
_OUTPUT_TAKES_NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_COMMANDS: tuple[Callable[..., None], ...] = (
    *(live.watch, live.status, live.health, live.pause, live.resume),
    *(live.state, live.rebalance, live.drain, dashboard.dashboard),
    *(offline.decide, offline.simulate, offline.replay, recommend.recommend),
    *(policies.policies, policies.check_policy),
    *(journal.actions, journal.explain, journal.override, report.report, diagnosis.diagnose),
)
_GROUPS: dict[str, tuple[str, tuple[Callable[..., None], ...]]] = {
    "pipeline": (
        "Functions joined by topics: run, scale, stop, draw them.",
        (pipeline.run, pipeline.status, pipeline.scale, pipeline.stop, pipeline.draw),
    ),
    "fleet": (
        "Decisions for many applications, and how they stand.",
        (fleet.run, fleet.status, fleet.key),
    ),
    "metrics": (
        "Metrics: the list, a Grafana dashboard, alert rules.",
        (metrics.show, metrics.grafana, metrics.alerts),
    ),
}

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# what follows the script belongs to the script, options too
app.command("run", context_settings={"allow_interspersed_args": False})(report_errors(run.run))
app.command("connect-server")(report_errors(connect.connect_server))
for command in _COMMANDS:
    app.command(command.__name__.replace("_", "-"))(report_errors(command))
for name, (summary, members) in _GROUPS.items():
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    for member in members:
        group.command(member.__name__)(report_errors(member))
    app.add_typer(group, name=name, help=summary)
laboratory.add_to(app)
app.command("config")(report_errors(config.config))
app.command("doctor")(report_errors(doctor.doctor))


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The autopilot for Spark Structured Streaming.

    Begin with `penstock run job.py`, look on with `penstock watch`, and ask `penstock actions` what it did.
    """


def perform(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; bad usage is one line on standard error."""
    usage_error = typer.BadParameter.__mro__[1]
    try:
        code = app(args=arguments, prog_name="penstock", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        if not isinstance(error, usage_error):
            raise
        return report_bad_usage(error, sys.argv[1:] if arguments is None else arguments)
    return code if isinstance(code, int) else DONE


def main() -> None:
    """Run the command of this process and end with its exit code."""
    if logging.lastResort is not None:
        # warnings of commands that set up no log of their own
        logging.lastResort.setFormatter(PlainFormatter("%(message)s"))
    try:
        sys.exit(perform())
    except BrokenPipeError:
        # the reader of our output has gone, as in `penstock actions | head`
        sys.stderr.close()
        sys.exit(FAILED)
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT_TAKES_NO_MORE:
            raise
        complain(f"standard output cannot be written: {error.strerror}")
        # what is left would be tried again, and complained about, at the end of the process
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
