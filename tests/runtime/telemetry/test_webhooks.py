"""Notifications: what is posted, how often it is tried, what is left out; and that nobody waits for them."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput, BadSettings
from penstock.runtime.telemetry.events import Event
from penstock.runtime.telemetry.webhooks import (
    MOST_WAITING,
    TRIES,
    Courier,
    RateLimit,
    Webhook,
    read_webhooks,
    sign,
    write_body,
)
from penstock.settings.model import Settings
from tests.fakes import FixedPolicy, a_scale
from tests.runtime.test_attach import Bench
from tests.runtime.test_heartbeat import Stuck
from tests.waiting import wait_for
from tests.web_receiver import Receiver, web_receiver

WHO = {"application": "app-1", "name": "words"}
KEY = "0123456789abcdef"
GROWS = Event("action", 12.5, "scale out 2 → 4", {"action": 7, "x": math.inf})


@contextmanager
def courier_to(receiver: Receiver, form: str = "json", per_minute: int = 600, seconds: float = 60.0, **more):
    courier = Courier(
        Webhook(form, receiver.url + "/hook?secret=s3cr3t"), WHO, KEY, per_minute, seconds, first_pause=0.01
    )
    try:
        yield courier
    finally:
        courier.close()


def sent(receiver: Receiver, count: int) -> list[dict[str, object]]:
    wait_for(f"{count} deliveries", lambda: len(receiver.received) >= count)
    return [json.loads(body) for _, _, body in receiver.received]


def test_an_event_is_posted_as_json_with_a_signature() -> None:
    with web_receiver() as receiver, courier_to(receiver) as courier:
        courier.put(GROWS)
        (body,) = sent(receiver, 1)
        path, headers, raw = receiver.received[0]
        wait_for("the count", lambda: courier.counts["sent"] == 1)
    assert path == "/hook?secret=s3cr3t"
    assert body == {
        "version": 1, "event": "action", "at": 12.5, **WHO, "text": "scale out 2 → 4", "left_out": 0,
        "action": 7, "x": None,
    }  # fmt: skip
    signed = f"{headers['X-Penstock-Timestamp']}.".encode() + raw
    expected = hmac.new(KEY.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Penstock-Signature"] == f"v1={expected}"
    assert sign(KEY, headers["X-Penstock-Timestamp"], raw) == f"v1={expected}"


def test_slack_is_commanded_by_no_name() -> None:
    told = json.loads(write_body("slack", {**WHO, "name": "<!channel> & co"}, GROWS, 3))
    assert told == {
        "text": "*&lt;!channel&gt; &amp; co*: scale out 2 → 4 (3 notifications were left out before)"
    }


def test_trouble_is_tried_again_with_the_same_number() -> None:
    with web_receiver(500, 429, 200) as receiver, courier_to(receiver) as courier:
        courier.put(GROWS)
        wait_for("success", lambda: courier.counts["sent"])
    assert len(receiver.received) == 3 and courier.counts == {"sent": 1, "failed": 0, "dropped": 0}
    assert len({headers["X-Penstock-Delivery"] for _, headers, _ in receiver.received}) == 1


@pytest.mark.parametrize(("codes", "tried"), [((404,), 1), ((302,), 1), ((500,) * TRIES, TRIES)])
def test_what_is_never_taken_is_given_up_and_said_once_without_its_address(
    codes: tuple[int, ...], tried: int, caplog: pytest.LogCaptureFixture
) -> None:
    with web_receiver(*codes, 404) as receiver, courier_to(receiver) as courier:
        for _ in range(2):
            courier.put(GROWS)
        wait_for("both", lambda: courier.counts["failed"] == 2)
    assert len(receiver.received) == tried + 1
    assert {path for path, _, _ in receiver.received} == {"/hook?secret=s3cr3t"}, "no redirect is followed"
    (told,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "notifications are not delivered: 127.0.0.1 does not take it" in told and "s3cr3t" not in told


def test_a_receiver_that_hangs_costs_nobody_else_and_the_queue_is_bounded() -> None:
    with web_receiver(stuck=True) as receiver, courier_to(receiver, per_minute=600) as courier:
        for _ in range(MOST_WAITING + 20):
            courier.put(GROWS)
        assert courier.counts["dropped"] >= 19, "one may be on its way"
        receiver.go_on.set()
        wait_for("the rest", lambda: courier.counts["sent"] + courier.counts["dropped"] == MOST_WAITING + 20)


def test_what_the_limit_leaves_out_is_told_with_the_next_and_the_urgent_pass() -> None:
    with web_receiver() as receiver, courier_to(receiver, per_minute=1) as courier:
        for kind in ("action", "outcome", "outcome", "rollback", "heartbeat"):
            courier.put(Event(kind, 1.0, kind))
        told = sent(receiver, 3)
    assert [(one["event"], one["left_out"]) for one in told] == [
        ("action", 0),
        ("rollback", 2),
        ("heartbeat", 0),
    ]


@given(st.integers(1, 600), st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_no_span_has_more_than_its_tokens(per_minute: int, gaps: list[float]) -> None:
    limit, now, taken = RateLimit(per_minute), 0.0, []
    for gap in gaps:
        now += gap
        if limit.take(now):
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            span = taken[last] - taken[first]
            assert last - first + 1 <= per_minute * (1 + span / 60) + 1e-6


def write_hooks(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_webhooks_are_read_from_a_file_of_ones_own(tmp_path: Path) -> None:
    file = write_hooks(tmp_path / "hooks", "# for the night\n\njson https://a/b\nslack https://h/T0/s3cr3t\n")
    assert read_webhooks(file) == (Webhook("json", "https://a/b"), Webhook("slack", "https://h/T0/s3cr3t"))
    for text, problem in (
        ("mail x@y", "line 1: `json` or `slack`"),
        ("", "0 webhooks"),
        ("json ftp://x", "line 1"),
    ):
        with pytest.raises(BadInput, match=problem):
            read_webhooks(write_hooks(file, text))
    file.chmod(0o640)
    with pytest.raises(BadInput, match="has mode 0640"):
        read_webhooks(file)
    with pytest.raises(BadSettings, match="unknown event 'mood'"):
        Settings(notify_events="mood")


@contextmanager
def telling(bench: Bench, receiver: Receiver, policy) -> Iterator[object]:
    hooks = write_hooks(bench.directory / "hooks", f"json {receiver.url}/hook\n")
    handle = bench.assembled(policy)
    events = "action,outcome,effect,heartbeat,pause"
    handle.settings = handle.settings.change(notify_webhooks_file=str(hooks), notify_events=events)
    yield handle
    handle.detach()


def test_a_change_is_told_from_begin_to_effect(bench: Bench) -> None:
    bench.source.seconds = 0.05
    with web_receiver() as receiver, telling(bench, receiver, FixedPolicy(a_scale(5))) as handle:
        handle.start()
        action, outcome, effect = sent(receiver, 3)[:3]
        handle.pause()
        pause = sent(receiver, 4)[3]
        assert handle.status()["notifications"]["dropped"] == 0
    assert (action["event"], action["change"], action["planned"]) == ("action", "scale-out", {"executors": 5})
    assert (
        action["text"] == "scale out 2 → 5 executors: the load needs more" and action["name"] == "words <1>"
    )
    assert (outcome["event"], outcome["status"], outcome["action"]) == ("outcome", "done", action["action"])
    assert (effect["event"], effect["expected"]["batch_seconds"]) == ("effect", 7.5)
    assert (pause["event"], pause["text"]) == ("pause", "paused: paused by hand")


def test_a_lost_heartbeat_is_told_although_the_loop_hangs(bench: Bench) -> None:
    stuck = Stuck()
    with web_receiver() as receiver, telling(bench, receiver, stuck) as handle:
        handle._heart.hangs_after = 0.3
        handle.start()
        try:
            (lost,) = sent(receiver, 1)
        finally:
            stuck.go_on.set()
        back = sent(receiver, 2)[1]
    assert lost["event"] == "heartbeat" and lost["hangs"] and "the autopilot hangs" in str(lost["text"])
    assert not back["hangs"]


def test_a_file_that_others_can_read_is_a_warning_and_the_job_runs_on(bench: Bench) -> None:
    with web_receiver() as receiver, telling(bench, receiver, None) as handle:
        (bench.directory / "hooks").chmod(0o644)
        handle.start()
        assert any("has mode 0644" in one for one in handle.status()["warnings"])
        assert handle.running
