"""The command contract: what goes to standard output, what to standard error, and with which exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, ParamSpec

import orjson
import typer
from rich.console import Console, RenderableType

from penstock.errors import BadInput, PenstockError

DONE, FAILED, BAD_USAGE = 0, 1, 2

Json = Annotated[bool, typer.Option("--json", help="End standard output with one JSON object.")]
Parameters = ParamSpec("Parameters")


def reported(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Turn what Penstock raises on purpose into one line on standard error and the right exit code."""

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PenstockError as error:
            complain(str(error))
            if kwargs.get("as_json"):
                print_json({"error": str(error)})
            raise typer.Exit(BAD_USAGE if isinstance(error, BadInput) else FAILED) from error

    return run


def answer(result: Mapping[str, Any], as_json: bool, shown: RenderableType) -> None:
    """Print the result once, for a program or for a person."""
    if as_json:
        print_json(result)
    else:
        Console().print(shown)


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON object on one line of standard output."""
    sys.stdout.write(json_line(result).decode())
    sys.stdout.flush()


def json_line(result: Mapping[str, Any]) -> bytes:
    """The result as one line of JSON."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(dict(result), default=str, option=options)


def complain(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    say(f"error: {message}")


def say(message: str) -> None:
    """A remark for people, on standard error, so that standard output stays clean."""
    sys.stderr.write(f"penstock: {' '.join(message.split())}\n")
    sys.stderr.flush()


def progress(message: str) -> None:
    """How long work is getting on; only people who watch want to know."""
    if sys.stderr.isatty():
        say(message)
