"""The control socket: who may talk, what is answered, and what becomes of files left behind."""

from __future__ import annotations

import json
import os
import select
import socket
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ActionFailed, BadInput, NotFound, Unsupported
from penstock.runtime import control

TOO_LARGE_A_STACK = 1 << 47
"""More than a process has addresses, so that no thread can be started."""


def handler(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    if command == "hello":
        return {"application": "app-1", "name": "words"}
    if command == "echo":
        return {"said": request["text"]}
    if command == "fault":
        raise ZeroDivisionError("by zero")
    raise BadInput(f"unknown command {command!r}")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def server(directory: Path) -> Iterator[control.ControlServer]:
    with closing(control.ControlServer(directory, "app-1", handler)) as running:
        yield running


def raw(path: Path, data: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(path))
        connection.sendall(data)
        answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer


def left_behind(directory: Path, name: str = "gone") -> Path:
    control.secure_directory(directory)
    path = directory / f"{name}.sock"
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(path))
    return path


def test_only_this_user_can_reach_the_socket(server: control.ControlServer, directory: Path) -> None:
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(server.path.stat().st_mode)


def test_a_directory_open_to_others_is_refused(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o755)
    with pytest.raises(Unsupported, match="mode must be 0700"):
        control.secure_directory(directory)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_not_a_directory_of_ours_is_refused(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    if kind == "file":
        target.write_text("")
    else:
        (tmp_path / "elsewhere").mkdir()
        target.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unsupported, match="no control socket"):
        control.secure_directory(target)


def test_a_directory_of_someone_else_is_refused(tmp_path: Path) -> None:
    theirs = Path("/usr")
    if os.geteuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir(mode=0o700)
        os.chown(theirs, 65534, -1)
    with pytest.raises(Unsupported, match="belongs to another user"):
        control.secure_directory(theirs)


def test_an_answer_comes_back(server: control.ControlServer) -> None:
    assert control.ask(server.path, "echo", text="höhe")["said"] == "höhe"


def test_several_requests_on_one_connection(server: control.ControlServer) -> None:
    line = json.dumps({"version": 1, "command": "echo", "text": "a"}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(server.path))
        answers = connection.makefile("rb")
        for _ in range(3):
            connection.sendall(line)
            assert json.loads(answers.readline())["said"] == "a"


@pytest.mark.parametrize(
    ("request_line", "complaint"),
    [
        (b"{not json}\n", "not JSON"),
        (b"[1, 2]\n", "not a JSON object"),
        (b'{"version": 2, "command": "hello"}\n', "version 2; this application speaks version 1"),
        (b'{"command": "hello"}\n', "version None"),
        (b'{"version": ' + b"[" * 1000 + b"]" * 1000 + b"}\n", "the request has version"),
        (b'{"version": 1}\n', 'no "command"'),
        (b'{"version": 1, "command": 7}\n', 'no "command"'),
        (b'{"version": 1, "command": "nonsense"}\n', "unknown command 'nonsense'"),
        (b'{"version": 1, "command": "fault"}\n', "ZeroDivisionError"),
        (b"\xff\xfe\n", "not JSON"),
        (b"x" * (control.LARGEST_REQUEST_BYTES + 1), "longer than"),
    ],
)
def test_a_bad_request_is_answered_with_what_is_wrong(
    server: control.ControlServer, request_line: bytes, complaint: str
) -> None:
    answer = raw(server.path, request_line)
    assert answer["ok"] is False
    assert answer["version"] == 1
    assert complaint in answer["error"]
    assert control.ask(server.path, "hello")["ok"], "one bad request must not stop the server"


def test_a_refusal_is_raised_with_its_reason(server: control.ControlServer) -> None:
    with pytest.raises(ActionFailed, match="unknown command"):
        control.ask(server.path, "nonsense")


def test_closing_removes_the_file_and_may_be_repeated(directory: Path) -> None:
    server = control.ControlServer(directory, "app-1", handler)
    server.close()
    server.close()
    assert not server.path.exists()
    with pytest.raises(NotFound):
        control.ask(server.path, "hello")


def test_an_application_is_found_by_id_by_name_or_because_it_is_alone(
    server: control.ControlServer, directory: Path
) -> None:
    for wanted in ("app-1", "words", None):
        assert control.find_running(directory, wanted).application == "app-1"


def test_none_running(directory: Path) -> None:
    with pytest.raises(NotFound, match="no application"):
        control.find_running(directory, None)


def test_an_unknown_name_lists_what_runs(server: control.ControlServer, directory: Path) -> None:
    with pytest.raises(BadInput, match=r"'counts'; running: app-1 \(words\)"):
        control.find_running(directory, "counts")


def test_several_running_are_listed(server: control.ControlServer, directory: Path) -> None:
    def other(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"application": "app-2", "name": "words"}

    with closing(control.ControlServer(directory, "app-2", other)):
        assert control.find_running(directory, "app-2").application == "app-2"
        for wanted in (None, "words"):
            with pytest.raises(BadInput, match=r"app-1.*app-2"):
                control.find_running(directory, wanted)


def test_stale_files_are_removed(server: control.ControlServer, directory: Path) -> None:
    stale = left_behind(directory)
    assert [one.application for one in control.list_running(directory)] == ["app-1"]
    assert not stale.exists()


def test_a_stale_file_of_the_same_application_is_replaced(directory: Path) -> None:
    left_behind(directory, "app-1")
    with closing(control.ControlServer(directory, "app-1", handler)) as server:
        assert control.ask(server.path, "hello")["name"] == "words"


def test_a_live_socket_is_not_taken_over(server: control.ControlServer, directory: Path) -> None:
    with pytest.raises(Unsupported, match="already answers"):
        control.ControlServer(directory, "app-1", handler)
    assert control.ask(server.path, "hello")["ok"]


def test_a_path_too_long_for_the_kernel_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="longer than 107 bytes"):
        control.ControlServer(tmp_path, "a" * 120, handler)


def test_odd_application_ids_stay_inside_the_directory(directory: Path) -> None:
    assert control.socket_path(directory, "../../etc/x y").parent == directory


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"gibberish\n", "is not JSON"),
        (b"[]\n", "not a JSON object"),
        (b'{"version": 9, "ok": true}\n', "speaks version 9, not 1"),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error(directory: Path, line: bytes, complaint: str) -> None:
    control.secure_directory(directory)
    path = directory / "odd.sock"
    with socket.socket(socket.AF_UNIX) as odd:
        odd.bind(str(path))
        odd.listen()
        thread = threading.Thread(target=answer_once, args=(odd, line), daemon=True)
        thread.start()
        with pytest.raises(ActionFailed, match=complaint):
            control.ask(path, "hello")
        thread.join()


@pytest.mark.parametrize("line", [b"", b'{"version": 1, "o'])
def test_an_application_that_ends_in_mid_answer_has_ended(directory: Path, line: bytes) -> None:
    control.secure_directory(directory)
    path = directory / "ending.sock"
    with socket.socket(socket.AF_UNIX) as ending:
        ending.bind(str(path))
        ending.listen()
        thread = threading.Thread(target=answer_once, args=(ending, line), daemon=True)
        thread.start()
        with pytest.raises(NotFound, match="has ended"):
            control.ask(path, "hello")
        thread.join()


def test_an_application_that_ends_before_it_reads_has_ended(directory: Path) -> None:
    control.secure_directory(directory)
    path = directory / "ending.sock"
    with socket.socket(socket.AF_UNIX) as ending:
        ending.bind(str(path))
        ending.listen()
        # the connection waits to be accepted, and is reset when the listening socket is closed
        closer = threading.Thread(target=close_when_reached, args=(ending,), daemon=True)
        closer.start()
        with pytest.raises(NotFound, match="has ended"):
            control.ask(path, "hello")
        closer.join()


def test_an_answer_that_is_no_json_is_refused_rather_than_left_out(directory: Path) -> None:
    def odd(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"name": "\udcff"}

    with closing(control.ControlServer(directory, "app-1", odd)) as server:
        with pytest.raises(ActionFailed, match="cannot be written as JSON"):
            control.ask(server.path, "hello")
        assert [one.application for one in control.list_running(directory)] == ["app-1"]


def test_who_looks_while_a_socket_is_made_does_not_take_it_away(directory: Path) -> None:
    made = threading.Event()

    def look() -> None:
        while not made.is_set():
            control.list_running(directory)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        for number in range(30):
            with closing(control.ControlServer(directory, f"app-{number}", handler)) as server:
                assert server.path.exists()
    finally:
        made.set()
        looking.join()


def test_only_the_socket_itself_is_left_in_the_directory(
    server: control.ControlServer, directory: Path
) -> None:
    assert list(directory.iterdir()) == [server.path]


def test_closing_again_leaves_the_socket_of_a_successor(directory: Path) -> None:
    first = control.ControlServer(directory, "app-1", handler)
    first.close()
    with closing(control.ControlServer(directory, "app-1", handler)) as second:
        first.close()
        assert control.ask(second.path, "hello")["ok"]


def test_without_a_thread_to_answer_there_is_no_socket(directory: Path) -> None:
    before = threading.stack_size(TOO_LARGE_A_STACK)
    try:
        with pytest.raises(Unsupported, match="thread"):
            control.ControlServer(directory, "app-1", handler)
    finally:
        threading.stack_size(before)
    assert list(directory.iterdir()) == []


def close_when_reached(listening: socket.socket) -> None:
    select.select([listening], [], [], 30)
    listening.close()


def answer_once(listening: socket.socket, line: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(line)


def test_a_hundred_clients_at_once_are_all_let_in(directory: Path) -> None:
    control.secure_directory(directory)
    # listening without a thread that accepts yet, as while the process is busy with other things
    path = control.socket_path(directory, "app-1")
    with control.listen(path, handler), ExitStack() as clients:
        for _ in range(100):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect(str(path))


def test_a_client_waits_while_others_are_before_it(directory: Path) -> None:
    control.secure_directory(directory)
    path = directory / "app-1.sock"
    with socket.socket(socket.AF_UNIX) as listening, ExitStack() as others:
        listening.bind(str(path))
        listening.listen(0)
        while True:
            other = others.enter_context(socket.socket(socket.AF_UNIX))
            other.setblocking(False)
            try:
                other.connect(str(path))
            except BlockingIOError:
                break
        answers: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: answers.append(control.ask(path, "hello")))
        asking.start()
        while not answers:
            accepted, _ = listening.accept()
            accepted.settimeout(5)
            with accepted, suppress(TimeoutError):
                others.close()
                if accepted.makefile("rb").readline():
                    accepted.sendall(b'{"version": 1, "ok": true, "application": "app-1"}\n')
                    asking.join()
    assert answers[0]["application"] == "app-1"
