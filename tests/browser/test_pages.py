"""State, fleet, pipelines, memory and diagnosis as people see them: a real browser over real sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from penstock.fleet.places import STATUS, FleetDirectory
from penstock.runtime.control import ControlServer
from tests.browser.browser import find, list_complaints, show_as, wait_for_script, wait_for_text
from tests.diagnose.logs import skewed_job
from tests.view.dashboard.served import served
from tests.view.dashboard.stateful import StatefulApplication
from tests.view.dashboard.test_memory import a_sizing
from tests.view.dashboard.test_pipelines import a_pipeline
from tests.waiting import wait_for

ROWS = 100_000
STATE = "/applications/app-1/state"


class WholeApplication(StatefulApplication):
    """Answers about state, memory and cores."""

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"sizing": a_sizing()} if command == "sizing" else super()._answer(command, request)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("p")


@pytest.fixture(scope="module")
def fleet(room: Path) -> FleetDirectory:
    """A hundred thousand applications of three teams; the last one has most to spare."""
    made, number = FleetDirectory(room / "fleet"), np.arange(ROWS)
    names = [f"{('pay', 'ship', 'ads')[one % 3]}.job-{one:06}" for one in number]
    ones, gib = np.ones(ROWS), 1024.0**3
    columns = [
        names, ones * time.time(), ones.astype(int) * 4, ones * 4, ones * 16, ones * 16, number * gib,
        ones * 0, ones * 0, ones > 2, ones.astype(int) * 0,
    ]  # fmt: skip
    made.write_status(0, pa.Table.from_arrays([pa.array(one) for one in columns], schema=STATUS))
    return made


@pytest.fixture(scope="module")
def application(room: Path) -> Iterator[WholeApplication]:
    made = WholeApplication(room / "run", "app-1", name="<b>joins</b>")
    yield made
    made.close()


@pytest.fixture(scope="module")
def pages(room: Path, application: WholeApplication, fleet: FleetDirectory) -> Iterator[str]:
    server = ControlServer(room / "run" / "pipelines", "words", lambda *_: {"status": a_pipeline()})
    with served(room / "run", report_to=str(fleet.root)) as client:
        yield str(client.base_url).rstrip("/")
    server.close()


def press(browser: Chrome, selector: str) -> None:
    browser.execute_script("arguments[0].click()", find(browser, selector))


def test_a_rebalancing_is_looked_at_begun_and_seen(
    browser: Chrome, pages: str, application: WholeApplication
) -> None:
    browser.get(pages + STATE)
    press(browser, '[data-colour="bytes"]')
    assert find(browser, "#map").get_attribute("data-measure") == "bytes"
    press(browser, '[data-order="rebalance"]')
    wait_for_text(browser, "dialog[open]", "3 bins, 3.0 MB")
    assert not application.migration, "it was planned, and nothing was begun"
    press(browser, "#dialog-yes")
    wait_for_text(browser, "#map", "1 of 3 bins moved")
    wait_for_script(browser, "document.querySelectorAll('td.bins .bin.moved').length === 3")
    assert find(browser, "h1").text == "<b>joins</b>" and list_complaints(browser) == []


def test_a_hundred_thousand_rows_are_searched_sorted_and_turned(browser: Chrome, pages: str) -> None:
    browser.get(f"{pages}/fleet")
    wait_for_text(browser, "#rows tbody tr", "pay.job-099999")
    find(browser, "[name=search]").send_keys("ship.job-0000")
    wait_for_text(browser, "#rows nav", "of 33, 100,000 in all")
    press(browser, "#rows th a.turn")
    wait_for_text(browser, "#rows tbody tr", "ship.job-000001")
    find(browser, "[name=search]").send_keys(Keys.BACKSPACE * 30)
    wait_for_text(browser, "#rows nav", "page 1 of 2,000")
    browser.execute_script("[...document.querySelectorAll('#rows nav a')].at(-1).click()")
    wait_for_text(browser, "#rows nav", "page 2,000 of 2,000")
    assert "page=2000" in browser.current_url, "the address can be forwarded"
    assert list_complaints(browser) == []


def test_a_log_that_is_chosen_is_diagnosed_with_progress(browser: Chrome, pages: str, room: Path) -> None:
    log = room / "app-<i>1"
    log.write_bytes(b"\n".join(skewed_job().lines) + b"\n")
    browser.get(f"{pages}/diagnosis")
    find(browser, "#file").send_keys(str(log))
    # a process of its own starts for it, which takes long on a busy machine
    said = "return document.querySelector('#job')?.textContent ?? ''"
    wait_for("the answer", lambda: "critical path" in browser.execute_script(said))
    assert list_complaints(browser) == []
    report = httpx.get(f"{browser.current_url}/report")
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts;")
    assert "allow-same-origin" not in report.headers["content-security-policy"]
    press(browser, "a.button")
    wait_for_text(browser, "h1", "demo")
    # in its sandbox the report has no origin, and so nothing of this server
    assert wait_for_script(browser, "window.origin") == "null"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        (STATE, "imbalance"), ("/applications/app-1/memory", "recommend-only"), ("/pipelines", "split"),
        ("/fleet", "ads"),
    ],
)  # fmt: skip
def test_every_page_fits_a_phone_in_the_dark(browser: Chrome, pages: str, path: str, word: str) -> None:
    show_as(browser, dark=True, width=390)
    browser.get(pages + path)
    wait_for_text(browser, "main", word)
    assert wait_for_script(browser, "document.documentElement.scrollWidth") <= 390
    assert wait_for_script(browser, "document.documentElement.dataset.theme") == "dark"
    assert list_complaints(browser) == []
