"""Chaos by a seed: one job on the proving ground, struck by one fault after the other until its input ends.

    python -m penstock_lab.experiments.faults.chaos --seconds 3600 --seed 7

The seed is printed, and the same one gives the same faults at the same moments. At the end the output is that
of the batch query, and what the driver holds in memory, files and threads has not grown.
"""

from __future__ import annotations

import argparse
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

import psutil

from penstock.errors import ActionFailed, PenstockError
from penstock.runtime.control import list_running
from penstock_lab.experiments.faults.ground import HOST, WORKERS, Strikes
from penstock_lab.experiments.faults.matrix import EXECUTOR_FAULTS, HOST_FAULTS
from penstock_lab.experiments.faults.network import OwnNetwork
from penstock_lab.experiments.faults.regimes.jobs import LoopRegime
from penstock_lab.ground.proving_ground import ProvingGround

FLOOD, LOCKED, DELETED = "control socket flooded", "journal locked", "journal deleted"
KINDS = (*EXECUTOR_FAULTS, *HOST_FAULTS, "driver killed", "driver frozen", FLOOD, LOCKED, DELETED)
QUIET_SECONDS = (20.0, 60.0)
"""Between two faults: time for a batch, and no more than a minute of peace."""
TAIL_SECONDS = 60.0
CLIENTS = 200
LOCK_SECONDS = 15.0
DRIP_SECONDS, DRIP_BYTES = 0.5, 10_000
MOST_GROWTH = 1.5
SLACK = {"memory_mb": 100.0, "descriptors": 40.0, "threads": 20.0}
"""Growth that is allowed beside MOST_GROWTH, from the begin of a driver to its end."""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault, and the second at which it comes."""

    at: float
    kind: str


def plan_chaos(seed: int, seconds: float) -> list[Strike]:
    """Choose faults and their moments: the same seed gives the same ones."""
    chooser, at, planned = random.Random(seed), TAIL_SECONDS / 2, []
    while at < seconds - TAIL_SECONDS:
        planned.append(Strike(round(at, 1), chooser.choice(KINDS)))
        at += chooser.uniform(*QUIET_SECONDS)
    return planned


@dataclass(frozen=True, slots=True)
class DriverUse:
    """The memory, files and threads of a driver at a moment."""

    run: int
    memory_mb: float
    descriptors: float
    threads: float


def find_growth(samples: Sequence[DriverUse]) -> list[str]:
    """Say what has grown without bound in the longest run of a driver, from its first to its last quarter."""
    runs = [sample.run for sample in samples]
    longest = [sample for sample in samples if sample.run == max(set(runs), key=runs.count)]
    quarter = len(longest) // 4
    if not quarter:
        return [f"{len(samples)} samples are too few to tell whether anything grows"]
    told = []
    for name, slack in SLACK.items():
        first, last = (
            median(getattr(one, name) for one in part) for part in (longest[:quarter], longest[-quarter:])
        )
        if last > MOST_GROWTH * first + slack:
            told.append(f"{name} grew from {first:.0f} to {last:.0f}")
    return told


class _DrippingHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer as slowly as can be."""
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            for _ in range(DRIP_BYTES):
                self.wfile.write(b"#")
                time.sleep(DRIP_SECONDS)

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


class DrippingService:
    """A service that answers a byte at a time and never ends, for the length of a `with`."""

    def __enter__(self) -> DrippingService:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _DrippingHandler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"
        threading.Thread(target=self._server.serve_forever, name="drip", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Chaos:
    """One run: the job, what strikes it, and what its driver holds."""

    def __init__(self, seed: int, seconds: float, tell: Callable[[str], None]) -> None:
        self._seed, self._seconds, self._tell = seed, seconds, tell
        self.samples: list[DriverUse] = []
        self._run = 0

    def run(self) -> list[str]:
        """Run to the end; return what went wrong."""
        with ExitStack() as stack:
            network = stack.enter_context(OwnNetwork())
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-chaos-")))
            place.chmod(0o700)
            ground = stack.enter_context(ProvingGround(WORKERS, HOST))
            service = stack.enter_context(DrippingService())
            self._regime = LoopRegime(
                ground, place, self._seconds, {"PENSTOCK_SERVICES": f"drip={service.url}"}
            )
            stack.callback(self._regime.end)
            self._strikes = Strikes(self._regime, network, None)
            return self._disturb()

    def _disturb(self) -> list[str]:
        self._regime.start()
        begun = time.monotonic()
        for strike in plan_chaos(self._seed, self._seconds):
            self._watch(begun + strike.at)
            self._tell(f"{time.monotonic() - begun:.0f} s: {strike.kind}")
            self._strike(strike.kind)
            self._regime.start_if_ended()
        self._watch(begun + self._seconds)
        self._regime.start_if_ended()
        self._regime.await_recovery(600.0)
        equal = self._regime.finish()
        wrong = find_growth(self.samples)
        return wrong if equal else ["the output is not that of the batch query", *wrong]

    def _watch(self, until: float) -> None:
        """Sample what the driver holds until then."""
        while time.monotonic() < until:
            with suppress(psutil.Error):
                process = psutil.Process(self._regime.process.pid)
                memory = process.memory_info().rss / 2**20
                self.samples.append(DriverUse(process.pid, memory, process.num_fds(), process.num_threads()))
            time.sleep(1.0)

    def _strike(self, kind: str) -> None:
        own = {FLOOD: self._flood, LOCKED: self._lock, DELETED: self._delete}
        try:
            (own.get(kind) or self._strikes.find(kind))()
        except ActionFailed as error:
            # a fault may find nothing to strike: the one before has ended it
            self._tell(f"{kind} found nothing: {error}")

    def _flood(self) -> None:
        """Ask for the status from many clients at once, of which half say nothing and stay."""
        silent: list[socket.socket] = []
        for running in list_running(self._regime.place / "run"):
            for number in range(CLIENTS):
                client = socket.socket(socket.AF_UNIX)
                client.settimeout(1.0)
                with suppress(OSError):
                    client.connect(str(running.path))
                    if number % 2:
                        client.sendall(b'{"version": 1, "command": "status"}\n')
                silent.append(client)
        time.sleep(2.0)
        for client in silent:
            client.close()

    def _lock(self) -> None:
        import sqlite3

        lock = sqlite3.connect(self._regime.place / "journal.db", isolation_level=None)
        try:
            with suppress(sqlite3.Error):
                lock.execute("BEGIN EXCLUSIVE")
                time.sleep(LOCK_SECONDS)
        finally:
            lock.close()

    def _delete(self) -> None:
        for path in self._regime.place.glob("journal.db*"):
            path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run chaos, and say by which seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long input comes")
    parser.add_argument("--seed", type=int, help="of an earlier run, to have its faults again")
    args = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    print(
        f"seed {seed}; again: python -m {__spec__.name} --seconds {args.seconds:g} --seed {seed}", flush=True
    )
    try:
        wrong = Chaos(seed, args.seconds, lambda text: print(text, flush=True)).run()
    except PenstockError as error:
        wrong = [str(error)]
    for text in wrong:
        print(f"wrong: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
