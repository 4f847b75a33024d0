"""The page of one application: what it shows, its explanations, its orders; over real control sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Hold
from penstock.decide.verdict import Accepted, NothingToDo
from penstock.journal.overrides import recall_overrides
from penstock.journal.store import open_journal
from penstock.journal.terms import Terms, remember_terms
from penstock.runtime.by_hand import name_user
from penstock.runtime.control import ControlServer
from tests.dataflow.costs.test_foresight import outlook
from tests.fakes import a_scale, a_window
from tests.view.dashboard.served import FakeApplication, next_point, read_events, served
from tests.view.dashboard.test_access import read_csrf

PAGE = "/applications/app-1"


@pytest.fixture(scope="module")
def orders(client: httpx.Client) -> Iterator[httpx.Client]:
    """A client that knows what pages of the server know."""
    client.headers["x-penstock-csrf"] = read_csrf(client)
    yield client
    del client.headers["x-penstock-csrf"]


def test_the_page_names_state_figures_and_decisions(client: httpx.Client) -> None:
    page = client.get(PAGE).text
    assert "word &lt;b&gt;count&lt;/b&gt; &amp; more" in page and "keeps up" in page
    assert "counts needs 4 slots for 500 records/s; &lt;b&gt;10&lt;/b&gt; are held" in page
    assert 'data-order="pause"' in page
    assert "plotly.min.js" in page and "//cdn" not in page


def test_an_unknown_application_is_said_to_be_none(client: httpx.Client) -> None:
    answer = client.get("/applications/app-404")
    assert answer.status_code == 404 and "no application app-404" in answer.text


def test_charts_get_columns_marks_and_waits_and_then_only_what_is_new(
    client: httpx.Client, words: FakeApplication
) -> None:
    events = read_events(client, f"{PAGE}/events")
    first = next(events)
    assert len(first["series"]["at"]) == 48 and first["series"]["executors_needed"][-1] == 2.0
    assert [mark["kind"] for mark in first["series"]["marks"]] == ["scale-out", "rejected", "scale-in"]
    (query,) = first["waits"]
    assert query["query"] == "counts" and query["causes"][0]["name"] == "run of tasks"
    assert first["whatif"] == {}
    words.change(recent=next_point(words.status, backlog_records=5.0))
    second = next(events)
    assert len(second["series"]["at"]) == 49 and "waits" not in second


def test_other_sizes_are_foreseen_from_the_costs_that_the_driver_has(
    client: httpx.Client, words: FakeApplication
) -> None:
    words.outlooks = [outlook()]
    words.change()
    found = (event.get("whatif") for event in read_events(client, f"{PAGE}/events"))
    rows = next(one for one in found if one)["rows"]
    # two slots an executor: two executors are the four slots of the example computed by hand
    assert (rows[1]["batch"], rows[1]["utilisation"], rows[1]["cost_change"]) == ("7 s", "70%", "as now")
    assert rows[3]["batch"] == "4 s" and rows[3]["cost_change"] == "+100% to now"
    assert "growing" in rows[0]["batch"] and not rows[0]["fits"]


def test_orders_reach_the_application_with_who_gave_them(
    orders: httpx.Client, words: FakeApplication
) -> None:
    words.asked.clear()
    assert orders.post(f"{PAGE}/orders/pause", json={}).json() == {"paused": True}
    assert "state paused" in orders.get(PAGE).text
    assert orders.post(f"{PAGE}/orders/resume", json={}).json() == {"paused": False}
    assert orders.post(f"{PAGE}/orders/scale", json={"executors": 5, "pause": True}).json() == {
        "executors": 5
    }
    given = [
        (command, request.get("by"), request.get("executors"))
        for command, request in words.asked
        if command not in ("status", "outlooks", "hello")
    ]
    user = name_user()
    assert given == [("pause", user, None), ("resume", user, None), ("pause", user, None), ("scale", user, 5)]
    orders.post(f"{PAGE}/orders/resume", json={})


@pytest.mark.parametrize(
    ("order", "body", "code", "said"),
    [
        ("scale", b'{"executors": 99}', 409, "max_executors is 12"),
        ("dance", b"{}", 404, "no order is called 'dance'"),
        ("pause", b"[]", 400, "not a JSON object"),
        ("pause", b"{", 400, "not JSON"),
        ("override", b"{}", 400, "nothing is pinned"),
        ("override", b'{"veto": "P99"}', 400, "unknown rule"),
        ("pause", b'{"a": "' + b"x" * 70_000 + b'"}', 400, "longer than"),
    ],
)
def test_an_order_that_cannot_be_is_refused_with_a_reason(
    orders: httpx.Client, order: str, body: bytes, code: int, said: str
) -> None:
    answer = orders.post(f"{PAGE}/orders/{order}", content=body)
    assert answer.status_code == code and said in answer.json()["error"]


def test_nothing_changes_by_asking(client: httpx.Client, words: FakeApplication) -> None:
    assert client.get(f"{PAGE}/orders/pause").status_code == 405
    assert not words.status["paused"]


def test_pins_and_vetoes_are_in_the_journal_with_who_said_so(orders: httpx.Client, sockets: Path) -> None:
    said = orders.post(f"{PAGE}/orders/override", json={"pin": "heap=2g, parallelism", "veto": "p3"}).json()
    assert said["veto"] == ["P3"] and said["by"] == name_user()
    with closing(open_journal(sockets.parent / "journal.db")) as journal:
        kept = recall_overrides(journal, "word <b>count</b> & more")
    assert kept["pin"] == said["pin"] == orders.get(f"{PAGE}/overrides").json()["pin"]
    assert [word["by"] for word in kept["log"]] == [name_user()]


def test_a_decision_explains_itself_from_the_journal_or_else_in_short(
    client: httpx.Client, words: FakeApplication, sockets: Path
) -> None:
    grown = next(one for one in words.status["decisions"] if one["kind"] == "scale-out")
    short = client.get(f"{PAGE}/explanations/{grown['at']}").json()
    assert short["title"].startswith("scale out 2 → 5 at ") and "needs 10 slots" in short["text"]
    with closing(open_journal(sockets.parent / "journal.db")) as journal:
        decision = journal.decided(grown["at"], "app-1", a_scale(5), Accepted(a_scale(5)), "ds2")
        action = journal.intend(grown["at"], "app-1", decision, a_scale(5), {EXECUTORS: 2})
        journal.ended(grown["at"] + 6, action, Outcome(Status.DONE, {EXECUTORS: 5}, {}, {}, 6.0, "all came"))
    told = client.get(f"{PAGE}/explanations/{grown['at']}").json()["text"]
    for part in ("Seen", "Proposed", "Guardrails", "Expected", "Ended", "Effect"):
        assert part in told
    assert client.get(f"{PAGE}/explanations/12.5").status_code == 404
    assert client.get(f"{PAGE}/explanations/now").status_code == 400


def test_an_application_of_the_past_is_told_by_the_journal(client: httpx.Client, sockets: Path) -> None:
    began = time.time() - 7200
    with closing(open_journal(sockets.parent / "journal.db")) as journal:
        for number, slots in enumerate((4, 4, 8)):
            window = a_window(began + 10 * number + 10, slots // 2, application="app-past")
            journal.observed(window.end, window)
        journal.decided(began + 10, "app-past", Hold("right"), NothingToDo("right"), "ds2")
        journal.remember(began, "nightly <i>", "run", "app-past", {})
    page = client.get("/applications/app-past").text
    assert "nightly &lt;i&gt;" in page and "ended" in page and "data-order" not in page
    series = client.get("/applications/app-past/data").json()["series"]
    assert series["executors"] == [2, 2, 4]
    with served(sockets) as fresh:
        row = fresh.get("/").text.split('id="former-app-past"')[1].split("</tr>")[0]
    # 10 s each with 2, 2 and 4 executors: 80 of the 120 seconds of the peak, and of 60 of the first size
    assert ">30 s<" in row and "0.02 executor-h" in row and "−33 % to peak, +33 % to start" in row
    with closing(open_journal(sockets.parent / "journal.db")) as journal:
        terms = Terms(task_cpus=3, price_per_core_hour=100.0)
        remember_terms(journal, began, "nightly <i>", "app-past", terms)
    # 160 slot-seconds of 3 cores each
    summary = client.get("/applications/app-past").text.split("cost so far")[1].split("</div>")
    assert ">13.33" in summary[1] and "−33 % to peak" in summary[2]
    with served(sockets) as fresh:
        assert ">13.33<" in fresh.get("/").text.split('id="former-app-past"')[1].split("</tr>")[0]


def test_one_that_does_not_answer_delays_nobody_and_has_no_heartbeat(
    client: httpx.Client, sockets: Path
) -> None:
    answer = threading.Event()

    def hang(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        answer.wait(30)
        return {}

    stuck = ControlServer(sockets, "app-stuck", hang)
    try:
        events = read_events(client, "/events/applications")
        told = next(event["running"] for event in events if "app-stuck" in event.get("running", ""))
        assert "no heartbeat" in told and "word &lt;b&gt;" in told
        page = client.get("/applications/app-stuck").text
        assert "it does not answer" in page and "data-order" not in page
    finally:
        answer.set()
        stuck.close()
