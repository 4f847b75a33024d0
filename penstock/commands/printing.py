"""The command contract: standard output is for the result, standard error for people, and the exit codes.

Every command takes `--json`: then the last line of standard output is one JSON object, and nothing else
there is JSON. Exit 0: done. 2: bad usage or bad input, with one line on standard error that names the file,
the line or the key. 1: the work itself failed. Progress goes to standard error, and only to a terminal.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import orjson
import typer
from rich.console import RenderableType

from penstock.errors import BadInput, PenstockError
from penstock.view.foreign_text import PlainConsole, escape_controls, replace_all_controls

DONE, FAILED, BAD_USAGE = 0, 1, 2
_CANNOT_BE_LOOKED_AT = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)

Json = Annotated[bool, typer.Option("--json", help="End standard output with one JSON object.")]
Parameters = ParamSpec("Parameters")


def report_errors(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Turn what Penstock raises on purpose into one line on standard error and the right exit code."""

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (PenstockError, UnicodeEncodeError, OSError) as error:
            told = _translate(error)
            if told is None:
                raise
            complain(str(told))
            if kwargs.get("as_json"):
                print_json({"error": str(told)})
            raise typer.Exit(BAD_USAGE if isinstance(told, BadInput) else FAILED) from error

    return run


def _translate(error: Exception) -> PenstockError | None:
    """Return an error as one of ours; None where it is a defect."""
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        # an argument or the name of a file holds bytes that are not UTF-8
        return BadInput(f"{error.object!r}: not text in UTF-8")
    if isinstance(error, OSError) and error.filename is not None and error.errno in _CANNOT_BE_LOOKED_AT:
        # the system refuses to say whether the file is there
        return BadInput(f"{error.filename}: cannot be looked at: {error.strerror}")
    return None


def report_bad_usage(error: Exception, arguments: Sequence[str]) -> int:
    """Say in one line what the parser refused, and where the help is; return the exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        sys.stderr.write(context.get_help() + "\n")
        return BAD_USAGE
    said = getattr(error, "format_message", lambda: str(error))().rstrip(".")
    said += f" (see {context.command_path} --help)" if context is not None else ""
    complain(said)
    if _wants_json(context, arguments):
        print_json({"error": said})
    return BAD_USAGE


def _wants_json(context: Any, arguments: Sequence[str]) -> bool:
    """Tell whether `--json` was meant for us: the parser has failed, so the words themselves must tell."""
    ours = list(arguments)
    if "--" in ours:
        ours = ours[: ours.index("--")]
    is_command = context is not None and not hasattr(context.command, "commands")
    if is_command and not context.allow_interspersed_args:
        ours = ours[: _first_positional(context, ours)]
    return "--json" in ours


def _first_positional(context: Any, words: Sequence[str]) -> int:
    """Return the place of the command's first own argument; what follows may belong to a user's script."""
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


def answer(result: Mapping[str, Any], as_json: bool, shown: RenderableType) -> None:
    """Print the result once, for a program or for a person."""
    if as_json:
        print_json(result)
    else:
        terminal().print(shown)


def terminal(error: bool = False) -> PlainConsole:
    """Return standard output or error for people; what its encoding does not have becomes a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    # a name that holds :100: is no picture
    return PlainConsole(emoji=False, stderr=error)


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object on one line of standard output, unless that is closed."""
    if sys.stdout is None:
        return
    line = json_line(result).decode()
    is_unicode = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    sys.stdout.write(line if is_unicode else json.dumps(json.loads(line)) + "\n")
    sys.stdout.flush()


def json_line(result: Mapping[str, Any]) -> bytes:
    """Return the result as one line of JSON."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    try:
        line = orjson.dumps(dict(result), default=str, option=options)
    except TypeError:
        line = orjson.dumps(_sound(dict(result)), default=str, option=options)
    return escape_controls(line.decode()).encode()


def _sound(value: Any) -> Any:
    """Write out bytes that are not UTF-8, as in the name of a file."""
    if isinstance(value, Mapping):
        return {_sound(key): _sound(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_sound(one) for one in value]
    text = value if isinstance(value, str | os.PathLike) else None
    return value if text is None else str(text).encode("utf-8", "backslashreplace").decode()


def write_output(path: Path, content: bytes) -> None:
    """Write a file that an option asks for."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None


def write_page(page: str, path: Path) -> None:
    """Write a page and say where it is."""
    from penstock.view.frame import write_text

    say(f"wrote {write_text(page, path)}")


def complain(message: str) -> None:
    """Print an error as one line on standard error, whatever the message holds."""
    say(f"error: {message}")


def say(message: str) -> None:
    """Print a remark for people on standard error, so that standard output stays clean."""
    if sys.stderr is not None:
        sys.stderr.write(f"penstock: {replace_all_controls(' '.join(_sound(message).split()))}\n")
        sys.stderr.flush()


def progress(message: str) -> None:
    """Say how far long work is, where a person is watching."""
    if sys.stderr is not None and sys.stderr.isatty():
        say(message)
