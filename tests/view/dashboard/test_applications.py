"""The page of all applications, over real control sockets."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import httpx

from tests.view.dashboard.served import EVERY, FakeApplication, next_point, read_events, served
from tests.waiting import wait_for


def test_a_name_with_markup_is_text(client: httpx.Client) -> None:
    page = client.get("/").text
    assert "word &lt;b&gt;count&lt;/b&gt; &amp; more" in page
    assert "<b>count" not in page


def test_files_are_kept_by_browsers_and_plotly_is_ours(client: httpx.Client) -> None:
    page = client.get("/").text
    script = page.split('src="/static/live.js')[1].split('"')[0]
    answer = client.get(f"/static/live.js{script}")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")
    assert len(client.get("/static/plotly.min.js").content) > 1_000_000
    assert client.get("/static/../app.py").status_code == 404


def test_only_what_changes_is_sent(client: httpx.Client, words: FakeApplication) -> None:
    events = read_events(client, "/events/applications")
    assert "app-1" in next(events)["running"]
    words.change(recent=next_point(words.status, observed_per_second=77_777.0))
    assert "77,777/s" in next(events)["running"]


def test_sockets_are_asked_only_while_someone_looks(sockets: Path, words: FakeApplication) -> None:
    with served(sockets) as client:
        client.get("/")
        words.asked.clear()
        with closing(read_events(client, "/events/applications")) as events:
            next(events)
        assert words.asked, "who follows is served"

        def nobody_asks() -> bool:
            known = len(words.asked)
            time.sleep(5 * EVERY)
            return len(words.asked) == known

        wait_for("an end of the rounds", nobody_asks)


def test_an_application_that_ends_stays_in_sight(sockets: Path, client: httpx.Client) -> None:
    short = FakeApplication(sockets, "app-short", name="short-lived")
    events = read_events(client, "/events/applications")
    assert any("short-lived" in event["running"] for event in events)
    short.close()
    told = next(event for event in events if "state ended" in event["running"])
    assert "short-lived" in told["running"]


def test_prometheus_reads_the_metrics_of_all_that_run(sockets: Path, client: httpx.Client) -> None:
    short = FakeApplication(sockets, "app-scraped", name="scraped")
    with closing(short):
        text = wait_for("its metrics", lambda: find_scraped(client))
    assert 'penstock_executors{application="app-scraped"' in text
    wait_for("its end", lambda: not find_scraped(client))


def find_scraped(client: httpx.Client) -> str:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text if "app-scraped" in answer.text else ""
