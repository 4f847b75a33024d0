"""Who may look and who may change: the one door through which every request comes.

On loopback this user may look, and only pages of this server may order something. For other users, and on any
other address, a token, or a header that a proxy sets after it has asked who it is, opens the door.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import BadInput
from penstock.runtime.by_hand import name_user
from penstock.runtime.listening import is_loopback
from penstock.view.dashboard.peers import find_peer

TOKEN_HELPS = "other users of its machine need one with a token, which its option --token sets"
FindUser = Callable[[tuple[str, int], tuple[str, int]], int | None]
READING = ("GET", "HEAD")
COOKIE = "penstock-token"
CSRF_HEADER = "x-penstock-csrf"
EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""An inline style with nothing in it: plotly.js makes one, and fills it in a way that is allowed."""
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {EMPTY_STYLE}; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of the door; `hosts` are names, beside numeric addresses, under which the server is called.

    `csrf` is told only to pages of this server, and every order must bring it along.
    """

    token: str | None = None
    proxy_header: str | None = None
    hosts: frozenset[str] = frozenset({"localhost"})
    read_only: bool = False
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))


def choose_access(
    host: str, token: str | None, proxy_header: str | None, names: tuple[str, ...], read_only: bool
) -> Access:
    """Return the access of a server at this address: beyond loopback a token is made where none is given."""
    if token is not None and len(token) < 16:
        raise BadInput("a token needs 16 characters or more: whoever guesses it is let in")
    local = is_loopback(host)
    made = secrets.token_urlsafe(24) if not (local or token or proxy_header) else token
    own = {"localhost"} if local else {"localhost", socket.gethostname().lower(), host.lower()}
    return Access(made, proxy_header, frozenset(own | {one.lower() for one in names}), read_only)


class Door:
    """Middleware: checks every request, and adds the headers that browsers obey."""

    def __init__(self, app: ASGIApp, access: Access, find_user: FindUser = find_peer) -> None:
        self.app, self.access, self._find_user = app, access, find_user
        self._user = name_user()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope)
        who = self._identify(request)
        answered = self._refuse(request, who)
        if answered is None:
            scope.setdefault("state", {})["who"] = who
        await (answered or self.app)(scope, receive, _add_headers(send))

    def _refuse(self, request: Request, who: str | None) -> Response | None:
        if not is_own_host(request.headers.get("host", ""), self.access.hosts):
            return _say("this server is not called so: --host-name adds a name that it answers to", 421)
        if who is None:
            return self._welcome(request)
        return None if request.method in READING else self._refuse_order(request)

    def _refuse_order(self, request: Request) -> Response | None:
        if self.access.read_only:
            return _say("this dashboard is read-only", 403)
        if not _is_own_origin(request.headers):
            return _say("the order comes from a page of another server", 403)
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode(), self.access.csrf.encode()):
            return _say("the order does not carry the token of this server's pages: load the page anew", 403)
        return None

    def _identify(self, request: Request) -> str | None:
        """Say who asks; None for one who may not."""
        access = self.access
        if access.proxy_header and (named := request.headers.get(access.proxy_header)):
            return named[:200]
        if access.token is not None:
            given = request.cookies.get(name_cookie(request), "") or _read_bearer(request.headers)
            return self._user if hmac.compare_digest(given.encode(), access.token.encode()) else None
        return None if access.proxy_header or self._is_of_another(request) else self._user

    def _is_of_another(self, request: Request) -> bool:
        """Tell whether another user of this machine asks; root may do all anyway."""
        client, server = request.scope.get("client"), request.scope.get("server")
        if client is None or server is None or not is_loopback(client[0]):
            return False
        user = self._find_user(tuple(client), tuple(server))
        return user is not None and user not in (0, os.getuid())

    def _welcome(self, request: Request) -> Response:
        """Turn the token of an address into a cookie, once; send all others away."""
        given, token = request.query_params.get("token", ""), self.access.token
        if token is None or not hmac.compare_digest(given.encode(), token.encode()):
            return _say(
                "not for you: open the address that `penstock dashboard` has printed; " + TOKEN_HELPS, 403
            )
        rest = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
        # one slash: two would lead to another server
        address = "/" + request.url.path.lstrip("/") + (f"?{urlencode(rest)}" if rest else "")
        response = RedirectResponse(address, status_code=303)
        response.set_cookie(
            name_cookie(request),
            token,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response


def _read_bearer(headers: Headers) -> str:
    """Read the token that a program sends, such as a Prometheus, in place of a browser's cookie."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def name_cookie(request: Request) -> str:
    """Name the cookie by the port: browsers show the cookies of a host to all servers on it."""
    server = request.scope.get("server")
    return f"{COOKIE}-{server[1]}" if server else COOKIE


def is_own_host(host: str, names: frozenset[str]) -> bool:
    """Tell whether a Host header names this server; a foreign name led here by DNS is refused."""
    try:
        called = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    if called in names:
        return True
    try:
        ipaddress.ip_address(called)
    except ValueError:
        return False
    return True


def _is_own_origin(headers: Mapping[str, str]) -> bool:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def _say(text: str, code: int) -> Response:
    return PlainTextResponse(text + "\n", status_code=code)


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers
