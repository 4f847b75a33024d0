"""The driver's /metrics: who may read it, who is turned away, and that the loop does not notice."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.errors import BadInput, BadSettings, Unsupported
from penstock.runtime.telemetry import server as serving
from penstock.runtime.telemetry.server import MOST_CLIENTS, MetricsServer, read_token
from penstock.settings.model import Settings
from penstock.settings.telemetry import split_address
from tests.runtime.test_attach import Bench
from tests.runtime.test_heartbeat import Stuck
from tests.waiting import wait_for

TOKEN = "0123456789abcdef"


@contextmanager
def served(token: str | None = None, text: bytes = b"penstock_paused 0\n") -> Iterator[MetricsServer]:
    with closing(MetricsServer("127.0.0.1:0", token, lambda: text)) as running:
        yield running


def ask(
    server: MetricsServer, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[int, str]:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    with closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_metrics_are_at_one_path_and_nothing_can_be_changed() -> None:
    with served() as server:
        assert ask(server) == (200, "penstock_paused 0\n")
        assert ask(server, "/metrics?x=1")[0] == 200
        assert ask(server, "/")[0] == 404
        assert ask(server, method="POST")[0] == 501


def test_a_token_is_asked_for_and_a_foreign_page_is_refused() -> None:
    with served(TOKEN) as server:
        assert ask(server)[0] == 401
        assert ask(server, Authorization="Bearer other")[0] == 401
        assert ask(server, Authorization=f"Basic {TOKEN}")[0] == 401
        assert ask(server, Authorization=f"Bearer {TOKEN}")[0] == 200
    with served() as server:
        names = {"localhost:1": 200, "127.0.0.1": 200, "[::1]:4051": 200, "evil.example:4051": 403}
        assert {name: ask(server, Host=name)[0] for name in names} == names


def test_figures_that_cannot_be_told_are_an_error_of_that_answer_alone() -> None:
    def fail() -> bytes:
        raise ValueError("no")

    with closing(MetricsServer("127.0.0.1:0", None, fail)) as server:
        assert ask(server)[0] == 500


def test_clients_that_say_nothing_are_few_and_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as server:
        address = (str(urlsplit(server.url).hostname), urlsplit(server.url).port)
        silent = [socket.create_connection(address) for _ in range(MOST_CLIENTS)]
        # the accepting thread has taken all of them when one more is turned away
        wait_for("a full house", lambda: is_turned_away(address))
        for client in server._server._clients:
            server._server._clients[client] = 0.0
        for one in silent:
            assert one.recv(1) == b"", "its time is over"
            one.close()
        wait_for("a free place", lambda: not server._server._clients)
        assert ask(server)[0] == 200


def is_turned_away(address: tuple[str, int | None]) -> bool:
    with socket.create_connection(address) as one:
        one.settimeout(0.2)
        try:
            return one.recv(1) == b""
        except TimeoutError:
            return False


def test_a_text_is_made_at_most_once_a_second() -> None:
    made: list[int] = []
    with closing(MetricsServer("127.0.0.1:0", None, lambda: made.append(1) or b"x")) as server:
        listening = server._server
        listening.text()
        listening._made_at = float("inf")
        assert listening.text() == b"x" and len(made) == 1
        listening._made_at = float("-inf")
        listening.text()
        assert len(made) == 2 and serving.FRESH_SECONDS > 0


def test_a_port_in_use_and_a_bad_token_file_are_said(tmp_path: Path, bench: Bench) -> None:
    with served() as server:
        taken = urlsplit(server.url).netloc
        with pytest.raises(Unsupported, match=f"no metrics: cannot listen at {taken}"):
            MetricsServer(taken, None, bytes)
        handle = bench.assembled()
        handle.settings = handle.settings.change(metrics=taken)
        handle.start()
        assert any("no metrics" in one for one in handle.status()["warnings"]), "and the job runs on"
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o644)
    with pytest.raises(BadInput, match="has mode 0644"):
        read_token(token, "the token")
    token.chmod(0o600)
    assert read_token(token, "the token") == TOKEN
    token.write_text("short")
    with pytest.raises(BadInput, match="at least 16"):
        read_token(token, "the token")


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("4051", "an IP address before the port"),
        ("127.0.0.1", "an address with a port"),
        ("host:4051", "an IP address before the port"),
        ("127.0.0.1:70000", "an address with a port"),
        ("0.0.0.0:4051", "metrics_token_file is needed"),
        ("[::]:4051", "metrics_token_file is needed"),
    ],
)
def test_an_address_that_others_could_reach_needs_a_token(written: str, problem: str) -> None:
    with pytest.raises(BadSettings, match=problem):
        Settings(metrics=written)


def test_addresses_are_read() -> None:
    assert split_address("localhost:1") == ("127.0.0.1", 1) and split_address("[::1]:2") == ("::1", 2)
    assert Settings(metrics="0.0.0.0:4051", metrics_token_file="t").tell_others and not Settings().tell_others


def test_a_hung_loop_is_still_scraped_and_ends_with_the_autopilot(bench: Bench) -> None:
    stuck = Stuck()
    handle = bench.assembled(stuck)
    handle.settings = handle.settings.change(metrics="127.0.0.1:0")
    handle.start()
    stuck.reached.wait()
    try:
        server = handle._outlets._server
        status, text = ask(server)
        assert (
            status == 200
            and 'penstock_executors{application="app-1",kind="allowed",name="words <1>"}' in text
        )
    finally:
        stuck.go_on.set()
    handle.detach()
    wait_for("the end", lambda: not handle.running)
    with pytest.raises(OSError):
        ask(server)
