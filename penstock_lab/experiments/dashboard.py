"""The dashboard: its first paint, how soon a change is on the screen, and what ten applications take.

Ten applications answer on real control sockets with statuses as long as they get: 500 points and 200
decisions, of which each changes every ten seconds, as an autopilot with default settings does. The dashboard
is a process of its own, and a browser without a screen shows its first page. Pages of a fleet of 100,000
applications are searched, sorted and turned by the server, also after a round. What a driver pays for being
watched is measured on a cluster (`watched_driver.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import numpy as np
import psutil
import pyarrow as pa

from penstock.errors import ActionFailed, BadInput
from penstock.fleet.listing import NUMBERS, TEXTS
from penstock.fleet.places import STATUS, FleetDirectory
from penstock.fleet.records import BUCKETS
from penstock.runtime.control import ControlServer
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row
from penstock_lab.experiments.spark_query import note_failure
from penstock_lab.experiments.watched_driver import measure_driver
from penstock_lab.ground.browser import open_browser
from penstock_lab.ground.dashboard_server import serve_dashboard
from penstock_lab.ground.spark_cluster import scratch_directory

APPLICATIONS = 10
POINTS, DECISIONS = 500, 200
INTERVAL_SECONDS = 10.0
PAINTS, CHANGES = 7, 15
WATCHED_SECONDS, QUICK_SECONDS = 60.0, 20.0
PATIENCE_SECONDS = 60.0
FLEET_APPLICATIONS, TEAMS = 100_000, 40
ROUNDS, TIMES = 5, 5
GIB = 1024.0**3
NOTES = [
    f"{APPLICATIONS} made-up applications on real control sockets, one changes each second; one browser",
    "first_paint_ms: the median of Chromium's first contentful paint, each time with an empty cache",
    "event_to_screen_ms: the longest time from a changed status to the changed row on the page",
    "server_cpu_share: processor time of the dashboard's process over the time watched, of one core",
    "fleet_page_ms: 50 rows of 100,000, the slowest kind of question (its median): searched, sorted by each "
    "column, turned, and the first page after a round",
    "driver_overhead_ratio: the driver's processor time for a record, the page of its application open over "
    "closed, in neighbouring blocks; _low and _high bound its interval, 95 % by resampling",
]
WATCH = """
const done = arguments[arguments.length - 1], wanted = arguments[0];
const look = () => document.body.textContent.includes(wanted);
const watcher = new MutationObserver(() => { if (look()) { watcher.disconnect(); done(Date.now()); } });
watcher.observe(document.body, {subtree: true, childList: true, characterData: true});
if (look()) { watcher.disconnect(); done(Date.now()); }
"""


class MadeUpApplication:
    """An application that answers on a control socket with a status as long as one gets."""

    def __init__(self, directory: Path, number: int, now: float) -> None:
        self._name, self._version = f"app-{number:04}", 0
        self._points = [_make_point(now - INTERVAL_SECONDS * (POINTS - n), 500.0) for n in range(POINTS)]
        decisions = [_make_decision(now - 3600 + 10 * n) for n in range(DECISIONS)]
        self._status = {**_STATUS, "application": self._name, "name": f"application {number}"}
        self._status["decisions"] = decisions
        self._server = ControlServer(directory, self._name, self._answer)

    def change(self, now: float, rate: float) -> None:
        """Let the next answer have one point more."""
        self._points = [*self._points[1:], _make_point(now, rate)]
        self._version += 1

    def close(self) -> None:
        """Answer no more."""
        self._server.close()

    def _answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if command != "status":
            raise BadInput(f"unknown command {command!r}")
        version = f"{self._name}.{self._version}"
        known = {"recent", "decisions"} if request.get("timeline") == version else set()
        told = {**self._status, "timeline": version, "now": time.time(), "recent": self._points}
        return {"status": {key: value for key, value in told.items() if key not in known}}


_STATUS: dict[str, Any] = {
    "policy": "ds2",
    "mode": "act",
    "paused": False,
    "executors": 2,
    "slots": 4,
    "slots_needed": 4,
    "queries": [],
    "bounds": {"least": 1, "most": 12},
    "heartbeat": {"hangs": False, "silent_seconds": 0.5},
    "warnings": [],
    "error": None,
}


def _make_point(at: float, rate: float) -> Row:
    figures = {"offered_per_second": 500.0, "observed_per_second": rate, "backlog_records": 0.0}
    sizes = {"slots_needed": 4.0, "slots_held": 4, "executors": 2}
    return {
        "at": at,
        **figures,
        "batch_seconds": 4.1,
        "period_seconds": 10.0,
        "latency_seconds": 9.0,
        **sizes,
    }


def _make_decision(at: float) -> Row:
    return {"at": at, "kind": "hold", "reason": "4 slots are needed and held: 500 records/s", "count": 6}


def run(extent: Extent, progress: Progress) -> Measurement:
    """Measure the dashboard over ten applications in a real browser."""
    watched = QUICK_SECONDS if extent.quick else WATCHED_SECONDS
    with ExitStack() as held:
        directory = held.enter_context(scratch_directory())
        now = time.time()
        applications = [MadeUpApplication(directory / "run", n, now) for n in range(APPLICATIONS)]
        write_round(directory / "fleet", now, 0)
        for one in applications:
            held.enter_context(closing(one))
        server, address = held.enter_context(serve_dashboard(directory, "--fleet", str(directory / "fleet")))
        browser = held.enter_context(_open_browser())
        progress("first paint")
        paints = [_time_paint(browser, address) for _ in range(PAINTS)]
        progress("from a change to the screen")
        delays = [_time_change(browser, applications[n % APPLICATIONS], n) for n in range(CHANGES)]
        progress(f"watching for {watched:.0f} s")
        share = _measure_share(server, applications, watched)
        progress("pages of a fleet")
        pages = time_pages(address, directory / "fleet")
    rows: list[Row] = [
        {"case": "first paint", "median_ms": median(paints), "longest_ms": max(paints)},
        {"case": "event to screen", "median_ms": median(delays), "longest_ms": max(delays)},
        {"case": f"watching {APPLICATIONS} applications", "cpu_share": share},
        *pages,
    ]
    figures = (median(paints), max(delays), share, max(float(page["median_ms"]) for page in pages))
    names = ("first_paint_ms", "event_to_screen_ms", "server_cpu_share", "fleet_page_ms")
    summary = dict(zip(names, figures, strict=True))
    failures: list[str] = []
    with note_failure(failures, "what a driver pays"):
        driver = measure_driver(extent, progress)
        rows, summary = [*rows, *driver.rows], summary | driver.summary
    return Measurement(rows, summary, NOTES, failures)


@contextmanager
def _open_browser() -> Iterator[Any]:
    """Open Chromium with patience for a busy machine."""
    with open_browser() as browser:
        browser.set_script_timeout(PATIENCE_SECONDS)
        browser.execute_cdp_cmd("Network.enable", {})
        yield browser


def _time_paint(browser: Any, address: str) -> float:
    """Return the milliseconds to the first contentful paint of the page of all applications."""
    browser.execute_cdp_cmd("Network.clearBrowserCache", {})
    browser.get(address)
    script = "return (performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime || null"
    return float(_wait_for("a first paint", lambda: browser.execute_script(script)))


def _time_change(browser: Any, application: MadeUpApplication, number: int) -> float:
    """Return the milliseconds from a changed status to the changed page, at another phase of the rounds."""
    time.sleep(0.3 + 0.17 * number % 1.0)
    rate = 70_000.0 + number
    changed = time.time()
    application.change(changed, rate)
    return float(browser.execute_async_script(WATCH, f"{rate:,.0f}/s")) - 1000 * changed


def _measure_share(
    server: psutil.Process, applications: Sequence[MadeUpApplication], seconds: float
) -> float:
    """Return the share of a core that the server takes while one application changes each second."""
    before, begun = server.cpu_times(), time.monotonic()
    for number in range(round(seconds)):
        applications[number % len(applications)].change(time.time(), 500.0 + number)
        time.sleep(max(0.0, begun + number + 1 - time.monotonic()))
    after, lasted = server.cpu_times(), time.monotonic() - begun
    return float(after.user + after.system - before.user - before.system) / lasted


def _wait_for(what: str, ask: Callable[[], Any]) -> Any:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        if (found := ask()) is not None:
            return found
        time.sleep(0.05)
    raise ActionFailed(f"{what} did not come within {PATIENCE_SECONDS:.0f} s")


def write_round(directory: Path, now: float, seed: int) -> None:
    """Write how all applications stand, as the fleet's controller does after each of its rounds."""
    place, each = FleetDirectory(directory), FLEET_APPLICATIONS // BUCKETS
    for bucket in range(BUCKETS):
        chance = np.random.default_rng([seed, bucket])
        names = [f"team{one % TEAMS}.job-{bucket * each + one:06}" for one in range(each)]
        held = chance.integers(1, 30, each)
        needed = np.maximum(1, held + chance.integers(-9, 4, each)).astype(float)
        columns = [
            names, now - 100 * chance.random(each), held, needed, 4.0 * held, 4 * np.minimum(needed, held),
            7 * GIB * held, 6 * GIB * needed, np.zeros(each), chance.random(each) > 0.99,
            np.zeros(each, dtype=np.int64),
        ]  # fmt: skip
        table = pa.Table.from_arrays([pa.array(column) for column in columns], schema=STATUS)
        place.write_status(bucket, table)


def time_pages(address: str, directory: Path) -> list[Row]:
    """Return for each kind of question the milliseconds of its page, the median and the longest."""
    asked = {
        "fleet: first page after a round": [_ask_after_round(address, directory, n) for n in range(ROUNDS)],
        "fleet: a name searched": [_ask(address, search=f"job-0{n}") for n in range(TIMES)],
        "fleet: another page": [_ask(address, page=1 + 300 * n) for n in range(TIMES)],
        "fleet: sorted by each column": [_ask(address, sort=sort) for sort in (*TEXTS, *NUMBERS)],
    }
    return [
        {"case": case, "median_ms": median(times), "longest_ms": max(times)} for case, times in asked.items()
    ]


def _ask_after_round(address: str, directory: Path, number: int) -> float:
    write_round(directory, time.time(), number)
    return _ask(address)


def _ask(address: str, **question: object) -> float:
    """Return the milliseconds until a page of the list is there."""
    begun = time.perf_counter()
    with build_opener(ProxyHandler({})).open(
        f"{address}fleet/rows?{urlencode(question)}", timeout=60
    ) as page:
        page.read()
    return 1000 * (time.perf_counter() - begun)
