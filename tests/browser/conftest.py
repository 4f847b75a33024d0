"""One browser for the tests of a module, which takes a second to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.browser.browser import opened_browser, show_as


@pytest.fixture(scope="module")
def opened() -> Iterator[Chrome]:
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def browser(opened: Chrome) -> Chrome:
    """The browser in light, on a wide screen, with nothing kept from the test before."""
    opened.get("about:blank")
    opened.delete_all_cookies()
    opened.get_log("browser")
    show_as(opened, dark=False, width=1400)
    return opened
