"""The control socket: how commands reach a running application, on this machine and by this user only.

One JSON request a line, one JSON answer a line, both with a version. The socket is a file of mode 0600 in a
directory of mode 0700, named after the application; nothing listens on a network port.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from penstock.errors import ActionFailed, BadInput, NotFound, PenstockError, Unsupported
from penstock.journal.private_files import make_private_directory
from penstock.units.texts import show_value

log = logging.getLogger(__name__)

VERSION = 1
LARGEST_REQUEST_BYTES = 64 * 1024
LONGEST_PATH_BYTES = 107
"""The longest path of a Unix socket that the kernel accepts, without its closing zero byte."""
PIPELINES = "pipelines"
"""Where pipelines listen, in a directory beside the sockets of autopilots."""
ANSWER_SECONDS = 10.0
TRY_AGAIN_SECONDS = 0.02
MOST_WAITING = 128
"""Clients that the kernel lets wait until they are answered; what comes beyond them is turned away."""

Answer = Mapping[str, Any]
Handler = Callable[[str, Mapping[str, Any]], Answer]
"""A command and its whole request in, the fields of the answer out; raises PenstockError to refuse."""


@dataclass(frozen=True, slots=True)
class Running:
    """An application that answers on its control socket."""

    application: str
    name: str
    path: Path

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send one command to this application and return its answer."""
        return ask(self.path, command, **fields)


class ControlServer:
    """Answers requests for one application until closed, each connection in a daemon thread."""

    def __init__(self, directory: Path, application: str, handler: Handler) -> None:
        secure_directory(directory)
        self.path = socket_path(directory, application)
        _remove_if_stale(self.path)
        self._server = listen(self.path, handler)
        self._closed = False
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="penstock-control", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            self._server.server_close()
            self.path.unlink(missing_ok=True)
            raise Unsupported(f"no control socket: {error}") from error

    def close(self) -> None:
        """Remove the socket file and stop answering; may be called twice."""
        if self._closed:
            return
        self._closed = True
        # first of all: as soon as we refuse, a successor may put its own file there
        self.path.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2)


class ApplicationEnded(NotFound):
    """The application went away between the question and the answer."""


def secure_directory(directory: Path) -> None:
    """Make the directory with mode 0700, or refuse one that others own or could write to."""
    try:
        make_private_directory(directory)
    except Unsupported as error:
        raise Unsupported(f"no control socket: {error}") from error


def socket_path(directory: Path, application: str) -> Path:
    """Return where an application listens; characters unfit for a file name become underscores."""
    path = directory / (re.sub(r"[^A-Za-z0-9._-]", "_", application) + ".sock")
    if len(os.fsencode(path)) > LONGEST_PATH_BYTES:
        raise Unsupported(f"no control socket: {path} is longer than {LONGEST_PATH_BYTES} bytes")
    return path


def ask(path: Path, command: str, **fields: Any) -> dict[str, Any]:
    """Send one command and return the answer; an answer that says no is raised."""
    request = orjson.dumps({"version": VERSION, "command": command, **fields}) + b"\n"
    try:
        line = _exchange(path, request)
    except (ConnectionRefusedError, FileNotFoundError) as error:
        raise NotFound(f"no application answers at {path}") from error
    except (ConnectionResetError, BrokenPipeError) as error:
        raise ApplicationEnded(f"the application at {path} has ended") from error
    except OSError as error:
        raise ActionFailed(f"the application at {path} did not answer: {error}") from error
    return _read_answer(path, line)


def list_running(directory: Path) -> list[Running]:
    """List all applications of this user that answer; remove the files of those that are gone."""
    if not directory.is_dir():
        return []
    secure_directory(directory)
    found = []
    for path in sorted(directory.glob("*.sock")):
        try:
            answer = ask(path, "hello")
        except ApplicationEnded:
            continue
        except NotFound:
            path.unlink(missing_ok=True)
            continue
        except PenstockError:
            # it lives but is stuck or speaks another version: still worth listing by its file name
            answer = {}
        found.append(Running(str(answer.get("application", path.stem)), str(answer.get("name", "")), path))
    return found


def find_running(directory: Path, wanted: str | None) -> Running:
    """Find the application with this id or name, or the only one that runs."""
    found = list_running(directory)
    listed = ", ".join(_label(one) for one in found)
    if not found:
        raise NotFound(
            f"no application with an attached autopilot is running (looked in {directory}): start one with "
            "`penstock run job.py`, or call penstock.attach(spark) in its driver"
        )
    matching = [one for one in found if wanted is None or wanted in (one.application, one.name)]
    if not matching:
        raise BadInput(f"no running application is called {wanted!r}; running: {listed}")
    if len(matching) > 1:
        several = ", ".join(_label(one) for one in matching)
        raise BadInput(f"several applications are running, name one by its id: {several}")
    return matching[0]


def _label(one: Running) -> str:
    return f"{one.application} ({one.name})" if one.name not in ("", one.application) else one.application


def _exchange(path: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        _connect(connection, path)
        connection.sendall(request)
        with connection.makefile("rb") as answers:
            return answers.readline()


def _connect(connection: socket.socket, path: Path) -> None:
    """Connect, and wait as long as for an answer where others are before us: the kernel does not, here."""
    give_up_at = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            connection.connect(str(path))
            return
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                raise
        time.sleep(TRY_AGAIN_SECONDS)


def _read_answer(path: Path, line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise ApplicationEnded(f"the application at {path} has ended")
    try:
        answer = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ActionFailed(f"the answer from {path} is not JSON") from error
    if not isinstance(answer, dict):
        raise ActionFailed(f"the answer from {path} is not a JSON object")
    if not answer.get("ok"):
        raise ActionFailed(str(answer.get("error", f"the application at {path} refused without a reason")))
    if answer.get("version") != VERSION:
        raise ActionFailed(f"the application at {path} speaks version {answer.get('version')}, not {VERSION}")
    return answer


def _remove_if_stale(path: Path) -> None:
    """Remove the file of a driver that crashed, which refuses connections; never take over a live one."""
    if not path.exists():
        return
    try:
        ask(path, "hello")
    except NotFound:
        path.unlink(missing_ok=True)
        return
    except PenstockError:
        pass
    raise Unsupported(f"no control socket: another autopilot already answers at {path}")


class Listening(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A socket that listens, each of its connections answered in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_WAITING
    handler: Handler

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away in mid-answer is no news for the user's job."""


def listen(path: Path, handler: Handler) -> Listening:
    """Listen under another name first: a socket that is bound and does not listen yet looks left behind."""
    unready = path.with_name(f".{secrets.token_hex(4)}")
    try:
        server = Listening(str(unready), _Connection)
        server.handler = handler
        unready.chmod(0o600)
        unready.rename(path)
    except OSError as error:
        unready.unlink(missing_ok=True)
        raise Unsupported(f"no control socket: cannot listen at {path}: {error}") from error
    return server


class _Connection(socketserver.StreamRequestHandler):
    timeout = ANSWER_SECONDS
    server: Listening

    def handle(self) -> None:
        """Answer line by line until the client hangs up or sends a line that is too long."""
        while line := self.rfile.readline(LARGEST_REQUEST_BYTES + 1):
            too_long = len(line) > LARGEST_REQUEST_BYTES
            answer = (
                _refuse(f"the request is longer than {LARGEST_REQUEST_BYTES} bytes")
                if too_long
                else answer_line(self.server.handler, line)
            )
            self.wfile.write(_encode(answer))
            if too_long:
                return


def _encode(answer: Answer) -> bytes:
    """Write the answer as one line; without any the client would think that the application has ended."""
    try:
        return orjson.dumps(answer, default=str, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
    except orjson.JSONEncodeError as error:
        return orjson.dumps(_refuse(f"the answer cannot be written as JSON: {error}")) + b"\n"


def answer_line(handler: Handler, line: bytes) -> dict[str, Any]:
    """Answer one request line; what is wrong with the request is said in the answer."""
    try:
        request = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return _refuse(f"the request is not JSON: {error}")
    if not isinstance(request, dict):
        return _refuse("the request is not a JSON object")
    if request.get("version") != VERSION:
        return _refuse(
            f"the request has version {show_value(request.get('version'))}; "
            f"this application speaks version {VERSION}"
        )
    command = request.get("command")
    if not isinstance(command, str):
        return _refuse('the request names no "command"')
    return _handle_command(handler, command, request)


def _handle_command(handler: Handler, command: str, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"version": VERSION, "ok": True, **handler(command, request)}
    except PenstockError as error:
        return _refuse(str(error))
    except Exception as error:
        log.warning("the autopilot failed to answer %r", command, exc_info=True)
        return _refuse(f"the autopilot failed to answer {command!r}: {type(error).__name__}: {error}")


def _refuse(reason: str) -> dict[str, Any]:
    return {"version": VERSION, "ok": False, "error": reason}
