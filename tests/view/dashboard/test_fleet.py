"""The page of a fleet: 100,000 rows of others, searched, sorted and turned by the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from penstock.fleet.listing import FleetListing, Question, parse_question
from penstock.fleet.places import FleetDirectory
from penstock.fleet.remembered import RememberedFleet
from penstock.settings.model import load_settings
from penstock.view.dashboard.access import Access
from penstock.view.dashboard.app import make_app
from penstock.view.dashboard.fleet_rows import describe_list
from penstock.view.dashboard.fleet_watch import FleetWatch
from penstock.view.dashboard.server import Address, listen_at, serve_in_thread
from tests.fleet.test_listing import a_row, a_status
from tests.view.dashboard.served import FakeApplication, read_events, served
from tests.waiting import wait_for

HOSTILE = "pay.<script>alert(1)</script>"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> FleetDirectory:
    made, now = FleetDirectory(tmp_path_factory.mktemp("fleet")), time.time()
    rows = [a_row(f"pay.job-{number:03}", at=now, needed_cores=number / 100) for number in range(120)]
    short = a_row("ship.orders", at=now, parallelism=2, needed_parallelism=5.0)
    made.write_status(0, a_status(*rows, short, a_row(HOSTILE, at=now), a_row("words", at=now)))
    row = {
        "application": HOSTILE,
        "decision_id": "d",
        "at": now,
        "rule": "P1",
        "reason": "<i>heap</i> is full",
    }
    made.write_decisions(0, pa.Table.from_pylist([row]))
    return made


@pytest.fixture(scope="module")
def fleet_client(sockets: Path, words: FakeApplication, fleet: FleetDirectory) -> Iterator[httpx.Client]:
    with served(sockets, report_to=str(fleet.root)) as made:
        yield made


def test_every_link_asks_what_it_says() -> None:
    listing = FleetListing.of(a_status(*(a_row(f"a{number}") for number in range(7))), [])
    question = Question(search="a", sort="team", descending=False, page=2, rows=3)
    shown = describe_list(question, listing.page(question, 0.0), 0.0)

    def asks(address: str) -> Question:
        return parse_question(dict(httpx.URL(address).params))

    assert asks(shown["next"]).page == 3 and asks(shown["before"]).page == 1
    assert asks(shown["next"]).search == "a"
    team, executors = shown["headings"][1], shown["headings"][2]
    assert team["way"] == "ascending" and asks(team["address"]).descending, "a second time the other way"
    assert asks(executors["address"]).sort == "parallelism" and asks(executors["address"]).descending
    assert shown["counted"] == "4 to 6 of 7"


def test_the_page_shows_who_wastes_who_lacks_and_what_was_decided(fleet_client: httpx.Client) -> None:
    page = fleet_client.get("/fleet?show=undersized&sort=application&order=asc").text
    assert "ship.orders" in page and "5 needed" in page
    assert "pay.job-007" not in page.split('id="rows"')[1]
    assert "To spare, by team" in page and "1 to 1 of 1" in page


def test_names_and_reasons_of_others_are_text(fleet_client: httpx.Client) -> None:
    for address in ("/fleet?search=script", f"/fleet/application?name={HOSTILE}"):
        page = fleet_client.get(address)
        assert page.status_code == 200
        assert "<script>alert" not in page.text and "&lt;script&gt;alert" in page.text
        assert "<i>heap" not in page.text and "&lt;i&gt;heap&lt;/i&gt; is full" in page.text


def test_pages_are_turned_by_the_server(fleet_client: httpx.Client) -> None:
    rows = fleet_client.get("/fleet/rows?search=JOB-&sort=application&order=asc&page=2").json()["rows"]
    assert "pay.job-050" in rows and "pay.job-049" not in rows
    assert "51 to 100 of 120" in rows


def test_a_question_that_is_none_is_told(fleet_client: httpx.Client) -> None:
    answer = fleet_client.get("/fleet/rows?sort=nothing")
    assert answer.status_code == 400 and answer.text.startswith("sort: ")
    assert fleet_client.get("/fleet/application?name=unknown").status_code == 404


def test_an_application_that_runs_here_opens_its_live_page(
    sockets: Path, fleet: FleetDirectory, fleet_client: httpx.Client
) -> None:
    running = FakeApplication(sockets, "app-77", name="words")
    try:
        with served(sockets, report_to=str(fleet.root)) as client:
            assert 'href="/applications/app-77"' in client.get("/fleet/application?name=words").text
    finally:
        running.close()
    assert "does not run on this machine" in fleet_client.get("/fleet/application?name=ship.orders").text


def test_the_sums_are_sent_and_the_list_is_told_to_look_again(fleet_client: httpx.Client) -> None:
    event = next(read_events(fleet_client, "/events/fleet"))
    assert "To spare, by team" in event["sums"] and event["fleet"] >= 1


def test_a_file_that_is_not_the_fleets_is_named_on_the_page(sockets: Path, tmp_path: Path) -> None:
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "bucket-00.parquet").write_bytes(b"nonsense")
    with served(sockets, report_to=str(tmp_path)) as client:
        assert "not a file of the fleet" in client.get("/fleet").text
        assert client.get("/fleet/rows").status_code == 400


def test_without_a_fleet_the_page_says_how_to_name_one(client: httpx.Client) -> None:
    page = client.get("/fleet")
    assert page.status_code == 200 and "--fleet DIRECTORY" in page.text


def test_a_fleet_is_read_as_the_server_starts_and_not_when_the_first_one_asks(
    tmp_path: Path, fleet: FleetDirectory
) -> None:
    settings = load_settings(environment={}, arguments={"report_to": str(fleet.root)})
    app = make_app(settings, Access())
    with serve_in_thread(app, listen_at(Address("127.0.0.1", 0))):
        wait_for("the list", lambda: app.state.dashboard.fleet.version == 1)
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "bucket-00.parquet").write_bytes(b"no")
    FleetWatch(RememberedFleet(tmp_path)).prepare()
