"""The command contract: what goes to standard output, what to standard error, and with which exit code."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, ParamSpec

import orjson
import typer
from rich.console import Console, RenderableType

from penstock.errors import BadInput, PenstockError

DONE, FAILED, BAD_USAGE = 0, 1, 2
_CANNOT_BE_LOOKED_AT = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)

Json = Annotated[bool, typer.Option("--json", help="End standard output with one JSON object.")]
Parameters = ParamSpec("Parameters")


def reported(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Turn what Penstock raises on purpose into one line on standard error and the right exit code."""

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PenstockError as error:
            raise _ending(error, bool(kwargs.get("as_json"))) from error
        except UnicodeEncodeError as error:
            # bytes of an argument or a file's name that are no UTF-8, and that came to where text is needed
            if error.reason != "surrogates not allowed":
                raise
            refused = BadInput(f"{error.object!r}: not text in UTF-8")
            raise _ending(refused, bool(kwargs.get("as_json"))) from error
        except OSError as error:
            # whether a file is there cannot be asked everywhere
            if error.filename is None or error.errno not in _CANNOT_BE_LOOKED_AT:
                raise
            refused = BadInput(f"{error.filename}: cannot be looked at: {error.strerror}")
            raise _ending(refused, bool(kwargs.get("as_json"))) from error

    return run


def _ending(error: PenstockError, as_json: bool) -> typer.Exit:
    complain(str(error))
    if as_json:
        print_json({"error": str(error)})
    return typer.Exit(BAD_USAGE if isinstance(error, BadInput) else FAILED)


def answer(result: Mapping[str, Any], as_json: bool, shown: RenderableType) -> None:
    """Print the result once, for a program or for a person."""
    if as_json:
        print_json(result)
    else:
        terminal().print(shown)


def terminal() -> Console:
    """Standard output for people; what its encoding does not have becomes a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    # a name that holds :100: is no picture
    return Console(emoji=False)


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON object on one line of standard output, which may be closed."""
    if sys.stdout is None:
        return
    line = json_line(result).decode()
    is_unicode = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    sys.stdout.write(line if is_unicode else json.dumps(json.loads(line)) + "\n")
    sys.stdout.flush()


def json_line(result: Mapping[str, Any]) -> bytes:
    """The result as one line of JSON."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    try:
        return orjson.dumps(dict(result), default=str, option=options)
    except TypeError:
        return orjson.dumps(_sound(dict(result)), default=str, option=options)


def _sound(value: Any) -> Any:
    """The same with bytes that are no UTF-8, as in the name of a file, written out."""
    if isinstance(value, Mapping):
        return {_sound(key): _sound(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_sound(one) for one in value]
    text = value if isinstance(value, str | os.PathLike) else None
    return value if text is None else str(text).encode("utf-8", "backslashreplace").decode()


def complain(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    say(f"error: {message}")


def say(message: str) -> None:
    """A remark for people, on standard error, so that standard output stays clean."""
    if sys.stderr is not None:
        sys.stderr.write(f"penstock: {' '.join(_sound(message).split())}\n")
        sys.stderr.flush()


def progress(message: str) -> None:
    """How long work is getting on; only people who watch want to know."""
    if sys.stderr is not None and sys.stderr.isatty():
        say(message)
