"""A real browser without a screen, from Debian's packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from penstock_lab.ground.browser import open_browser

EVERY = 0.05
PATIENCE = 60
"""Seconds to wait for what should be there at once: the machine may be busy."""


@contextmanager
def opened_browser(dark: bool = False, width: int = 1400, height: int = 1000) -> Iterator[Chrome]:
    """Open a browser, in light or dark and of this size, and close it at the end."""
    with open_browser() as browser:
        show_as(browser, dark, width, height)
        yield browser


def show_as(browser: Chrome, dark: bool, width: int, height: int = 1000) -> None:
    """Let pages be shown on a screen of this size, in light or dark."""
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def find(browser: Chrome, selector: str) -> Any:
    """Return the first element, once it is there."""
    return WebDriverWait(browser, PATIENCE, EVERY).until(
        lambda one: one.find_element(By.CSS_SELECTOR, selector)
    )


def wait_for_text(browser: Chrome, selector: str, text: str) -> None:
    """Wait until the first element holds this text; its content may be changed meanwhile."""
    found = "document.querySelector(arguments[0])"
    script = f"return {found} !== null && {found}.textContent.includes(arguments[1])"
    WebDriverWait(browser, PATIENCE, EVERY).until(lambda one: one.execute_script(script, selector, text))


def wait_for_script(browser: Chrome, script: str) -> Any:
    """Wait until this script returns something true, and return it."""
    return WebDriverWait(browser, PATIENCE, EVERY).until(lambda one: one.execute_script(f"return {script}"))


def list_complaints(browser: Chrome) -> list[str]:
    """List what the browser complained about since it was last asked."""
    return [
        entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]
