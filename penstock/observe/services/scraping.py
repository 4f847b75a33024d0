"""Scrapes the metrics that remote services publish for Prometheus."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.errors import BadInput, PenstockError
from penstock.observe.bounded_http import fetch_page
from penstock.observe.services.board import BOARD, ServiceBoard
from penstock.observe.services.metrics import Scraped, parse_prometheus, take_reading

log = logging.getLogger(__name__)

LARGEST_TEXT = 8 << 20
"""Bytes of one scrape; a service that publishes more is not read at all."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One service: where its text is, and which of its metrics is which aspect."""

    name: str
    url: str
    metrics: Mapping[str, str]


def list_scrapes(services: Mapping[str, str], metrics: Mapping[str, str]) -> tuple[Scrape, ...]:
    """Give each service its metrics: those under its own name outrank those for all."""
    for_all = {aspect: metric for aspect, metric in metrics.items() if "." not in aspect}
    found = []
    for name, url in services.items():
        # a service's name may hold dots itself, an aspect holds none
        parts = {tuple(key.rpartition(".")[::2]): metric for key, metric in metrics.items()}
        own = {aspect: metric for (owner, aspect), metric in parts.items() if owner == name}
        found.append(Scrape(name, url, {**for_all, **own}))
    return tuple(found)


def scrape_service(scrape: Scrape, now: float, timeout: float) -> Scraped:
    """Read what the service publishes now; BadInput or BadMetrics says what is wrong."""
    try:
        text = fetch_page(scrape.url, timeout, LARGEST_TEXT, accept="text/plain;version=0.0.4")
    except BadInput as error:
        raise BadInput(f"service {scrape.name}: {error}") from error
    return Scraped(now, parse_prometheus(text.decode("utf-8", "replace")))


class Scraper:
    """Scrapes all services in a daemon thread; one that does not answer is reported once and tried again."""

    def __init__(
        self,
        scrapes: tuple[Scrape, ...],
        every: float,
        timeout: float,
        board: ServiceBoard = BOARD,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._scrapes, self._every, self._timeout = scrapes, every, timeout
        self._board, self._clock = board, clock
        self._troubled: set[str] = set()
        self._before: dict[str, Scraped] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-scraper", daemon=True)

    def __enter__(self) -> Scraper:
        if self._scrapes:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def look(self) -> None:
        """Scrape each service once."""
        for scrape in self._scrapes:
            try:
                found = scrape_service(scrape, self._clock(), self._timeout)
                before, self._before[scrape.name] = self._before.get(scrape.name), found
                self._board.publish(take_reading(found, scrape.name, scrape.metrics, before))
                self._troubled.discard(scrape.name)
            except PenstockError as error:
                if scrape.name not in self._troubled:
                    log.warning("%s", error)
                self._troubled.add(scrape.name)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(self._every)
