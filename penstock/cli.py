"""The commands; the only place that wires parts together."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from penstock import __version__
from penstock.commands import (
    audit,
    benches,
    diagnosis,
    evidence,
    fleet,
    live,
    migration,
    offline,
    override,
    pipeline,
    replay,
    run,
    setup,
    simulate,
    workload,
)
from penstock.commands.printing import BAD_USAGE, DONE, FAILED, complain, print_json

INTERRUPTED = 130
_OUTPUT_TAKES_NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

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
migration.add_to(app)
offline.add_to(app)
pipeline.add_to(app)
simulate.add_to(app)
replay.add_to(app)
audit.add_to(app)
override.add_to(app)
diagnosis.add_to(app)
fleet.add_to(app)
benches.add_to(app)
workload.add_to(app)
evidence.add_to(app)
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
        return _bad_usage(error, sys.argv[1:] if arguments is None else arguments)
    return code if isinstance(code, int) else DONE


def _bad_usage(error: Exception, arguments: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        sys.stderr.write(context.get_help() + "\n")
        return BAD_USAGE
    said = getattr(error, "format_message", lambda: str(error))()
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    complain(said.rstrip(".") + hint)
    if _wants_json(context, arguments):
        print_json({"error": said.rstrip(".") + hint})
    return BAD_USAGE


def _wants_json(context: Any, arguments: Sequence[str]) -> bool:
    """Whether `--json` was meant for us: the parser has failed, so the words themselves must tell."""
    ours = list(arguments)
    if "--" in ours:
        ours = ours[: ours.index("--")]
    is_command = context is not None and not hasattr(context.command, "commands")
    if is_command and not context.allow_interspersed_args:
        ours = ours[: _first_positional(context, ours)]
    return "--json" in ours


def _first_positional(context: Any, words: Sequence[str]) -> int:
    """Where the command's first own argument stands; what follows it may belong to a user's script."""
    valued = {
        name
        for option in context.command.params
        for name in option.opts
        if name.startswith("-") and not getattr(option, "is_flag", False)
    }
    at = list(words).index(context.info_name) + 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    return at


def main() -> None:
    """The entry point of the `penstock` command."""
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
