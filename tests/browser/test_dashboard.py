"""The dashboard as people see it: a real browser, and hand-written applications on real control sockets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from penstock.view.dashboard.access import Access
from tests.browser.browser import find, list_complaints, show_as, wait_for_script, wait_for_text
from tests.dataflow.costs.test_foresight import costs, outlook
from tests.view.dashboard.served import FakeApplication, next_point, served
from tests.waiting import started, wait_for

NAME = "word <script>alert(1)</script> & <b>more</b>"
TOKEN = "0123456789abcdefghij"
MAP_STYLES = "ji27qzEtxXZW"
"""plotly.js brings the styles of maps, which the policy keeps out: nothing here is a map."""


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b") / "run"


@pytest.fixture(scope="module")
def words(sockets: Path) -> Iterator[FakeApplication]:
    seen = outlook(costs(4, 0.05), costs(8, 0.05))
    application = FakeApplication(
        sockets, "app-1", outlooks=[seen], name=NAME, bounds={"least": 1, "most": 12}
    )
    yield application
    application.close()


@pytest.fixture(scope="module")
def pages(sockets: Path, words: FakeApplication) -> Iterator[str]:
    with served(sockets) as client:
        yield str(client.base_url).rstrip("/")


def list_own_complaints(browser: Chrome) -> list[str]:
    return [said for said in list_complaints(browser) if MAP_STYLES not in said]


def open_application(browser: Chrome, pages: str) -> None:
    browser.get(f"{pages}/applications/app-1")
    wait_for_script(browser, "document.getElementById('timeline').dataset.points")


def is_shown(browser: Chrome, address: str) -> bool:
    """Open the page of an application, and say whether there is one."""
    browser.get(address)
    return bool(browser.execute_script("return document.querySelector('#summary .state') !== null"))


def press(browser: Chrome, selector: str) -> None:
    """Press a button as scripts do: charts that are drawn meanwhile may move it."""
    browser.execute_script("arguments[0].click()", find(browser, selector))


def test_applications_move_by_themselves_and_names_are_text(
    browser: Chrome, pages: str, words: FakeApplication, sockets: Path
) -> None:
    browser.get(f"{pages}/")
    wait_for_text(browser, "#live", "live")
    wait_for_text(browser, "#row-app-1 .name", NAME)
    words.change(recent=next_point(words.status, observed_per_second=4321.0))
    wait_for_text(browser, "#row-app-1", "4,321/s")
    other = FakeApplication(sockets, "app-2", name="another")
    wait_for_text(browser, "#row-app-2", "another")
    other.close()
    wait_for_text(browser, "#row-app-2 .state", "ended")
    assert list_own_complaints(browser) == []


def test_focus_stays_where_it_is_while_the_page_changes(
    browser: Chrome, pages: str, words: FakeApplication
) -> None:
    browser.get(f"{pages}/")
    wait_for_text(browser, "#live", "live")
    for _ in range(12):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.text == NAME:
            break
    words.change(recent=next_point(words.status, observed_per_second=987.0))
    wait_for_text(browser, "#row-app-1", "987/s")
    assert browser.switch_to.active_element.text == NAME
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait_for_text(browser, "h1", NAME)


def test_the_charts_share_their_axis_and_every_decision_is_a_mark(browser: Chrome, pages: str) -> None:
    open_application(browser, pages)
    drawn = browser.execute_script(
        "const chart = document.getElementById('timeline');"
        "return {axes: Object.keys(chart._fullLayout._subplots.xaxis).length,"
        " rows: chart._fullLayout._subplots.yaxis.length, marks: chart._fullLayout.shapes.length,"
        " told: chart.data.filter((one) => one.mode === 'markers').map((one) => one.hovertext[0])}"
    )
    assert (drawn["axes"], drawn["rows"], drawn["marks"]) == (1, 4, 2)
    assert any("&lt;b&gt;10&lt;/b&gt; are held" in told for told in drawn["told"])
    browser.execute_script(
        "const chart = document.getElementById('timeline');"
        "const mark = chart.data.find((one) => one.name === 'scale-out');"
        "chart.emit('plotly_click', {points: [{customdata: mark.customdata[0]}]})"
    )
    wait_for_text(browser, "#dialog-title", "scale out 2 → 5")
    wait_for_text(browser, "#dialog-body", "counts needs 10 slots")
    assert list_own_complaints(browser) == []


def test_the_slider_tells_what_another_size_would_bring(browser: Chrome, pages: str) -> None:
    open_application(browser, pages)
    wait_for_text(browser, "#whatif-executors", "2 (held)")
    wait_for_text(browser, "#whatif-batch", "7 s")
    find(browser, "#executors").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    wait_for_text(browser, "#whatif-batch", "4 s")
    wait_for_text(browser, "#whatif-batch-range", "3.8 s to 4.2 s")
    wait_for_text(browser, "#whatif-cost-range", "+100% to now")


def test_pause_resume_and_a_size_are_asked_for_twice(
    browser: Chrome, pages: str, words: FakeApplication
) -> None:
    open_application(browser, pages)
    press(browser, "#pause")
    wait_for_text(browser, "#dialog-title", "Pause the autopilot?")
    find(browser, "#dialog").send_keys(Keys.ESCAPE)
    assert not words.status["paused"]
    press(browser, "#pause")
    press(browser, "#dialog-yes")
    wait_for_text(browser, "#summary", "paused")
    press(browser, "#resume")
    press(browser, "#dialog-yes")
    wait_for_text(browser, "#summary", "keeps up")
    press(browser, "#scale")
    find(browser, "#size").clear()
    find(browser, "#size").send_keys("5")
    press(browser, "#dialog-yes")
    wait_for_text(browser, "#notice", "on the way to 5 executors")
    assert ("scale", 5) in [(command, request.get("executors")) for command, request in words.asked]


def test_a_driver_that_dies_while_it_is_watched_is_said_to_be_gone(
    browser: Chrome, pages: str, sockets: Path
) -> None:
    words = [sys.executable, "-m", "tests.view.dashboard.mortal", str(sockets), "app-3"]
    with started(words):
        wait_for("its page", lambda: is_shown(browser, f"{pages}/applications/app-3"), every=1.0)
        wait_for_text(browser, "#live", "live")
    wait_for_text(browser, "#summary .state", "ended")
    wait_for_script(browser, "!document.querySelector('[data-order]')")
    wait_for_text(browser, "#decisions", "counts needs 4 slots")


@pytest.mark.parametrize(("path", "dark"), [("/", False), ("/applications/app-1", True)])
def test_pages_fit_a_phone_and_follow_the_system(browser: Chrome, pages: str, path: str, dark: bool) -> None:
    show_as(browser, dark, width=390, height=800)
    browser.get(f"{pages}{path}")
    wait_for_text(browser, "#live", "live")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    theme = browser.execute_script("return document.documentElement.dataset.theme")
    assert theme == ("dark" if dark else "light")
    press(browser, "#theme")
    assert browser.execute_script("return document.documentElement.dataset.theme") != theme
    browser.execute_script("localStorage.clear()")


def test_a_wrong_token_is_refused_and_the_right_one_is_needed_once(browser: Chrome, sockets: Path) -> None:
    with served(sockets, Access(token=TOKEN)) as client:
        address = str(client.base_url)
        browser.get(f"{address}?token=wrong-wrong-wrong")
        assert "not for you" in browser.page_source and NAME not in browser.page_source
        browser.get(f"{address}?token={TOKEN}")
        wait_for_text(browser, "#live", "live")
        assert browser.current_url == address
        browser.get(f"{address}applications/app-1")
        wait_for_text(browser, "h1", NAME)


def test_the_page_says_when_the_server_is_gone(browser: Chrome, sockets: Path) -> None:
    with served(sockets) as client:
        browser.get(str(client.base_url))
        wait_for_text(browser, "#live", "live")
    wait_for_text(browser, "#live", "no connection")
    with pytest.raises(httpx.TransportError):
        httpx.get(str(client.base_url))
