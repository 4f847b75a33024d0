"""Who is let in, who may order something, and what browsers are told."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from penstock.errors import ActionFailed, BadInput
from penstock.view.dashboard.access import Access, Door, choose_access, is_own_host
from penstock.view.dashboard.peers import find_peer, write_end
from penstock.view.dashboard.server import Address, listen_at
from tests.view.dashboard.served import FakeApplication, served

TOKEN = "0123456789abcdefghij"


@pytest.fixture(scope="module")
def guarded(sockets: Path, words: FakeApplication) -> Iterator[httpx.Client]:
    with served(sockets, Access(token=TOKEN)) as made:
        yield made


def read_csrf(client: httpx.Client) -> str:
    return client.get("/").text.split('name="csrf" content="')[1].split('"')[0]


def test_a_strict_policy_forbids_what_is_inline_and_foreign(client: httpx.Client) -> None:
    headers = client.get("/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4050", "127.0.0.1.evil.example", ""])
def test_a_foreign_name_for_this_server_is_refused(client: httpx.Client, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:4050", "127.0.0.1", "[::1]:4050", "10.0.0.7:1"])
def test_numbers_and_own_names_are_no_foreign_names(host: str) -> None:
    assert is_own_host(host, frozenset({"localhost"}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-penstock-csrf": "guessed"},
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_an_order_from_elsewhere_is_refused(
    client: httpx.Client, words: FakeApplication, headers: dict[str, str]
) -> None:
    given = (
        {"x-penstock-csrf": read_csrf(client), **headers}
        if "x-penstock-csrf" not in headers and headers
        else headers
    )
    answer = client.post("/applications/app-1/orders/pause", headers=given, json={})
    assert answer.status_code == 403
    assert "pause" not in [command for command, _ in words.asked]


def test_nothing_is_shown_without_the_token(guarded: httpx.Client) -> None:
    for path in ("/", "/applications/app-1", "/events/applications", "/static/live.js", "/?token=wrong"):
        answer = guarded.get(path)
        assert answer.status_code == 403 and "app-1" not in answer.text


def test_the_token_becomes_a_cookie_that_no_script_reads(guarded: httpx.Client) -> None:
    answer = guarded.get(f"/applications/app-1?a=1&token={TOKEN}")
    assert answer.status_code == 303 and answer.headers["location"] == "/applications/app-1?a=1"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert guarded.get("/").status_code == 200
    guarded.cookies.clear()


def test_programs_send_the_token_in_a_header(guarded: httpx.Client) -> None:
    for token, answered in (("wrong", 403), (TOKEN, 200)):
        headers = {"authorization": f"Bearer {token}"}
        assert guarded.get("/metrics", headers=headers).status_code == answered
    assert guarded.get("/metrics").status_code == 403, "and no cookie is kept of it"


def test_a_path_with_two_slashes_leads_to_no_other_server(guarded: httpx.Client) -> None:
    answer = guarded.get(f"{guarded.base_url}/evil.example/?token={TOKEN}")
    assert answer.headers["location"] == "/evil.example/"
    guarded.cookies.clear()


def test_behind_a_proxy_its_header_is_needed_and_names_who_orders(sockets: Path) -> None:
    with served(sockets, Access(proxy_header="x-forwarded-user")) as client:
        assert client.get("/").status_code == 403
        assert client.get("/", headers={"x-forwarded-user": "ada"}).status_code == 200


def test_read_only_takes_no_orders(sockets: Path) -> None:
    with served(sockets, Access(read_only=True)) as client:
        answer = client.post(
            "/applications/app-1/orders/pause", headers={"x-penstock-csrf": read_csrf(client)}, json={}
        )
        assert answer.status_code == 403 and "read-only" in answer.text


def test_beyond_loopback_a_token_is_made() -> None:
    assert choose_access("127.0.0.1", None, None, (), False).token is None
    assert choose_access("::1", None, None, (), False).token is None
    assert choose_access("localhost", None, None, (), False).token is None
    far = choose_access("0.0.0.0", None, None, ("Dash.example",), False)
    assert far.token is not None and len(far.token) >= 32 and "dash.example" in far.hosts
    assert choose_access("0.0.0.0", None, "x-user", (), False).token is None
    with pytest.raises(BadInput, match="16 characters"):
        choose_access("0.0.0.0", "short", None, (), False)


def test_other_users_of_the_machine_are_sent_away_from_loopback() -> None:
    async def welcome(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.who)

    def ask(user: int | None) -> int:
        plain = Starlette(routes=[Route("/", welcome)])
        door = Door(plain, Access(), lambda client, server: user)
        transport = httpx.ASGITransport(door, client=("127.0.0.1", 50_000))

        async def get() -> httpx.Response:
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4050") as client:
                return await client.get("/")

        return asyncio.run(get()).status_code

    assert [ask(os.getuid()), ask(0), ask(None), ask(os.getuid() + 1)] == [200, 200, 200, 403]


def test_the_kernel_tells_whose_connection_it_is() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        assert find_peer(one.getsockname(), server.getsockname()) == os.getuid()
        assert find_peer(("127.0.0.1", 1), server.getsockname()) is None
    assert find_peer(("::1", 1), ("::1", 2), (Path("/nowhere"),)) is None


def test_an_end_is_written_as_the_kernel_does() -> None:
    assert write_end(("127.0.0.1", 4050)) == "0100007F:0FD2"
    assert write_end(("::1", 80)) == "00000000000000000000000001000000:0050"


def test_who_comes_as_soon_as_the_address_is_told_waits_for_the_server() -> None:
    with listen_at(Address("127.0.0.1", 0)) as listening:
        # the address is printed before the pages are made, which takes a second
        socket.create_connection(listening.getsockname(), timeout=5).close()
        with pytest.raises(ActionFailed, match="Address already in use"):
            listen_at(Address(*listening.getsockname()))
