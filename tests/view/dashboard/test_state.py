"""The page of state: the map of bins, and moves that are planned, looked at, begun and seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.view.dashboard.access import Access
from penstock.view.dashboard.bin_map import (
    LEVELS,
    MOST_BINS,
    describe_map,
    describe_plans,
    find_level,
    find_places,
)
from tests.view.dashboard.served import read_events, served
from tests.view.dashboard.stateful import StatefulApplication
from tests.view.dashboard.test_access import read_csrf
from tests.view.made_up_state import a_plan, a_query, state

ADDRESS = "/applications/app-state/state"


@pytest.fixture(scope="module")
def application(sockets: Path) -> Iterator[StatefulApplication]:
    made = StatefulApplication(sockets, "app-state", name="<b>joins</b>")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _as_it_was(application: StatefulApplication) -> Iterator[None]:
    yield
    application.state, application.migration = state(), None
    application.asked.clear()


@pytest.fixture(scope="module")
def state_client(application: StatefulApplication, sockets: Path) -> Iterator[httpx.Client]:
    with served(sockets) as made:
        yield made


def order(client: httpx.Client, what: str, **fields: object) -> httpx.Response:
    return client.post(f"{ADDRESS}/{what}", headers={"x-penstock-csrf": read_csrf(client)}, json=fields)


def test_bins_lie_with_their_executors_and_the_hot_one_is_marked() -> None:
    shown = describe_map(state(), None)
    first = shown["queries"][0]
    assert [one["worker"] for one in first["executors"]] == ["1", "2", "3"]
    assert [[each["text"] for each in one["bins"]] for one in first["executors"]] == [
        ["0", "2", "4", "6", "8", "10"], ["1", "3", "5", "7", "9"], ["11"],
    ]  # fmt: skip
    hot = [each for one in first["executors"] for each in one["bins"] if each["hot"]]
    # mean of the 12 loads: (1.9 + 11 * 0.3 + 0.01 * (66 - 3)) / 12 = 0.4858; 1.9 / 0.4858 = 3.9
    assert [each["text"] for each in hot] == ["3"] and "3.9 times the mean" in hot[0]["title"]
    assert hot[0]["levels"]["load"] == LEVELS


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_shades_follow_the_values(one: float, other: float) -> None:
    most = max(one, other)
    assert (find_level(one, most) > find_level(other, most)) <= (one > other)
    assert all(0 <= find_level(value, most) <= LEVELS for value in (one, other))
    assert (find_level(one, most) == 0) == (one == 0)


def test_a_query_with_very_many_bins_is_drawn_in_part() -> None:
    shown = describe_map(state(queries=[a_query(bins=MOST_BINS + 500)]), None)["queries"][0]
    assert sum(len(one["bins"]) for one in shown["executors"]) == MOST_BINS and shown["left"] == 500


def test_plans_say_what_they_move_and_bring() -> None:
    (plan,) = describe_plans([a_plan()])
    assert plan["said"] == "3 bins, 3.0 MB, fluid, 4 batches"
    assert plan["imbalance"] == "imbalance 62% → 5%"
    assert describe_plans([a_plan(moves=a_plan()["moves"] * 40)])[0]["left"] == 70


def test_a_rebalancing_is_planned_looked_at_and_begun(
    state_client: httpx.Client, application: StatefulApplication
) -> None:
    page = state_client.get(ADDRESS).text
    assert "&lt;b&gt;joins" in page and "<b>joins" not in page
    assert 'class="bin hot"' in page and "Rebalance…" in page
    planned = order(state_client, "plan", command="rebalance", strategy="fluid").json()
    assert planned["count"] == 1 and "3 bins, 3.0 MB" in planned["plans"]
    assert [request["dry_run"] for command, request in application.asked if command == "rebalance"] == [True]
    assert order(state_client, "start", command="rebalance").json() == {"started": True}
    command, request = application.asked[-1]
    assert command == "rebalance" and request["dry_run"] is False and request["by"]
    assert order(state_client, "stop").json() == {"stopping": True}


def test_the_map_is_live_while_state_moves(sockets: Path, application: StatefulApplication) -> None:
    application.migration = {"state": "moving", "moved": 0, "of": 2, "detail": ""}
    with served(sockets) as client:
        events = read_events(client, f"{ADDRESS}/events")
        assert "0 of 2 bins moved" in next(events)["map"]
        application.move(0, to="3")
        application.migration = {"state": "moving", "moved": 1, "of": 2, "detail": ""}
        told = next(event for event in events if "1 of 2 bins moved" in event["map"])
    assert 'class="bin moved"' in told["map"].split("just moved")[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": "delete"}, "rebalance or drain"),
        ({"command": "drain"}, "executor: "),
        ({"command": "drain", "executor": "x" * 201}, "executor: "),
        ({"command": "rebalance", "strategy": "fast"}, "fast"),
        ({"command": "drain", "executor": "9"}, "there is no executor 9"),
    ],
)
def test_an_order_that_is_none_is_refused(
    state_client: httpx.Client, fields: dict[str, str], said: str
) -> None:
    answer = order(state_client, "plan", **fields)
    assert answer.status_code in (400, 409) and said in answer.json()["error"]


def test_nothing_moves_without_the_token_or_by_looking(
    state_client: httpx.Client, application: StatefulApplication
) -> None:
    assert state_client.post(f"{ADDRESS}/start", json={"command": "rebalance"}).status_code == 403
    assert state_client.get(f"{ADDRESS}/start?command=rebalance").status_code == 405
    assert not [command for command, _ in application.asked if command == "rebalance"]


def test_read_only_has_no_buttons(application: StatefulApplication, sockets: Path) -> None:
    with served(sockets, Access(read_only=True)) as client:
        page = client.get(ADDRESS).text
    assert "Rebalance" not in page and 'data-orders="no"' in page


def test_an_application_without_state_says_so(sockets: Path, application: StatefulApplication) -> None:
    application.state = state(queries=[], obstacle="observing only: nothing is moved")
    with served(sockets) as client:
        page = client.get(ADDRESS).text
    assert "No query holds state yet" in page and "observing only" in page


def test_places_are_those_of_the_bins() -> None:
    assert find_places(state(queries=[a_query(bins=2)])) == {
        ("5f0c-counts", 0, 0): "1",
        ("5f0c-counts", 0, 1): "3",
    }
