"""The commands; the only place that wires parts together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from penstock import __version__
from penstock.commands import audit, benches, diagnosis, live, offline, run, setup, simulate
from penstock.commands.printing import BAD_USAGE, DONE, FAILED, complain

INTERRUPTED = 130

app = typer.Typer(
    name="penstock",
    help="The autopilot for Spark Structured Streaming.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
run.add_to(app)
live.add_to(app)
offline.add_to(app)
simulate.add_to(app)
audit.add_to(app)
diagnosis.add_to(app)
benches.add_to(app)
setup.add_to(app)


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
    """The autopilot for Spark Structured Streaming."""


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
        return _bad_usage(error)
    return code if isinstance(code, int) else DONE


def _bad_usage(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        sys.stderr.write(context.get_help() + "\n")
        return BAD_USAGE
    said = getattr(error, "format_message", lambda: str(error))()
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    complain(said.rstrip(".") + hint)
    return BAD_USAGE


def main() -> None:
    """The entry point of the `penstock` command."""
    try:
        sys.exit(perform())
    except BrokenPipeError:
        # the reader of our output has gone, as in `penstock actions | head`
        sys.stderr.close()
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
