"""Notifications: events posted to webhooks, signed, a few a minute, tried again; in threads of their own."""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from penstock.errors import BadInput
from penstock.journal.private_files import read_secret
from penstock.observe.bounded_http import NotTaken, name_host, post_page
from penstock.runtime.telemetry.events import HEARTBEAT, ROLLBACK, Event

log = logging.getLogger(__name__)

VERSION = 1
MOST_HOOKS, MOST_WAITING = 8, 200
TRIES = 5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
CLOSING_SECONDS = 2.0
URGENT = (HEARTBEAT, ROLLBACK)
"""Events that no limit leaves out."""
LONGEST_TEXT = 2000
SIGNATURE, TIMESTAMP, DELIVERY = "X-Penstock-Signature", "X-Penstock-Timestamp", "X-Penstock-Delivery"

Identity = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where notifications go, and in which form."""

    form: Literal["json", "slack"]
    url: str


def read_webhooks(path: Path) -> tuple[Webhook, ...]:
    """Read the file of webhooks, one a line; errors name the line and never the address."""
    hooks = []
    for number, line in enumerate(read_secret(path, "the webhooks").splitlines(), start=1):
        form, _, url = line.strip().partition(" ")
        if not form or form.startswith("#"):
            continue
        if form not in ("json", "slack") or not url.strip().startswith(("http://", "https://")):
            raise BadInput(
                f"{path} line {number}: `json` or `slack` and an address with https:// are expected"
            )
        hooks.append(Webhook("json" if form == "json" else "slack", url.strip()))
    if not hooks or len(hooks) > MOST_HOOKS:
        raise BadInput(f"{path}: {len(hooks)} webhooks, and 1 to {MOST_HOOKS} are expected")
    return tuple(hooks)


def write_body(form: str, who: Identity, event: Event, left_out: int) -> bytes:
    """Write an event as JSON, or in the form that Slack takes; foreign names command nothing there."""
    if form == "slack":
        name = who["name"] or who["application"]
        more = f" ({left_out} notifications were left out before)" if left_out else ""
        text = f"*{_escape(name)}*: {_escape(event.text[:LONGEST_TEXT])}{more}"
        return orjson.dumps({"text": text})
    plain = {
        "version": VERSION,
        "event": event.kind,
        "at": event.at,
        **who,
        "text": event.text[:LONGEST_TEXT],
    }
    return orjson.dumps({**plain, "left_out": left_out, **_drop_infinite(event.fields)}, default=str)


def sign(key: str, timestamp: str, body: bytes) -> str:
    """Return the signature: HMAC-SHA256 of the time, a dot and the body."""
    return "v1=" + hmac.digest(key.encode(), timestamp.encode() + b"." + body, "sha256").hex()


class RateLimit:
    """A bucket that fills with so many tokens a minute, and holds no more than that."""

    def __init__(self, per_minute: int) -> None:
        self._per_second, self._most, self._held = per_minute / 60.0, float(per_minute), float(per_minute)
        self._last: float | None = None

    def take(self, now: float) -> bool:
        """Take a token, if there is one; the time never goes back."""
        if self._last is not None:
            self._held = min(self._most, self._held + (now - self._last) * self._per_second)
        self._last = now
        if self._held < 1.0:
            return False
        self._held -= 1.0
        return True


class Courier:
    """Brings events to one webhook, in a thread of its own; `put` never waits."""

    def __init__(
        self,
        hook: Webhook,
        who: Identity,
        key: str | None,
        per_minute: int,
        seconds: float,
        first_pause: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self._hook, self._who, self._key, self._seconds, self._pause = hook, who, key, seconds, first_pause
        self._limit = RateLimit(per_minute)
        self._waiting: deque[tuple[Event, int]] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._left_out = 0
        self._complained = False
        self.counts = {"sent": 0, "failed": 0, "dropped": 0}
        self._thread = threading.Thread(target=self._run, name="penstock-notify", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Take an event, or leave it out: what is urgent passes the limit, but no full queue."""
        with self._changed:
            allowed = self._limit.take(time.monotonic()) or event.kind in URGENT
            if not allowed or len(self._waiting) >= MOST_WAITING:
                self._left_out += 1
                self.counts["dropped"] += 1
                return
            self._waiting.append((event, self._left_out))
            self._left_out = 0
            self._changed.notify()

    def close(self) -> None:
        """Send what waits, once each and for two seconds at most, then end."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(CLOSING_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
                if not self._waiting:
                    return
                event, left_out = self._waiting.popleft()
            try:
                self._deliver(event, left_out)
            except Exception:
                log.warning("a notification could not be written", exc_info=True)
                self._count("failed")

    def _deliver(self, event: Event, left_out: int) -> None:
        body = write_body(self._hook.form, self._who, event, left_out)
        number, pause = secrets.token_hex(8), self._pause
        for attempt in range(1, TRIES + 1):
            try:
                post_page(self._hook.url, body, self._make_headers(body, number), self._seconds)
            except NotTaken as error:
                if error.is_final or attempt == TRIES or self._closing.wait(pause):
                    self._complain(error)
                    return
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                self._complained = False
                self._count("sent")
                return

    def _make_headers(self, body: bytes, number: str) -> dict[str, str]:
        timestamp = str(int(time.time()))
        headers = {"Content-Type": "application/json", TIMESTAMP: timestamp, DELIVERY: number}
        return headers | ({SIGNATURE: sign(self._key, timestamp, body)} if self._key is not None else {})

    def _complain(self, error: NotTaken) -> None:
        """Say once that a webhook does not work, until it does again."""
        self._count("failed")
        if not self._complained:
            log.warning("%s: notifications are not delivered: %s", self._who["application"], error)
        self._complained = True

    def _count(self, what: str) -> None:
        with self._changed:
            self.counts[what] += 1


class Notifier:
    """All couriers of an autopilot."""

    def __init__(self, couriers: Sequence[Courier], kinds: Sequence[str]) -> None:
        self._couriers, self._kinds = couriers, frozenset(kinds)

    def put(self, event: Event) -> None:
        """Send an event of a kind that is wanted."""
        if event.kind in self._kinds:
            for courier in self._couriers:
                courier.put(event)

    def counts(self) -> dict[str, int]:
        """Return how many were sent, failed, and were dropped unsent."""
        told = [courier.counts for courier in self._couriers]
        return {what: sum(one[what] for one in told) for what in ("sent", "failed", "dropped")}

    def close(self) -> None:
        """End all couriers at the same time."""
        closing = [threading.Thread(target=courier.close, daemon=True) for courier in self._couriers]
        for one in closing:
            one.start()
        for one in closing:
            one.join(CLOSING_SECONDS)


def describe_hooks(hooks: Sequence[Webhook]) -> str:
    """Name where notifications go, without what may be a secret."""
    return ", ".join(f"{hook.form} to {name_host(hook.url)}" for hook in hooks)


def _escape(text: str) -> str:
    """Escape what Slack reads as a link or a call to everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _drop_infinite(fields: Mapping[str, Any]) -> dict[str, Any]:
    def sound(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): sound(one) for key, one in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {key: sound(value) for key, value in fields.items()}
