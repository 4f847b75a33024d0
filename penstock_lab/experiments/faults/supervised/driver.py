"""A driver that counts: its output is a file of numbers. A file of each batch in its checkpoint comes before.

    python -m penstock_lab.experiments.faults.supervised.driver SETTINGS DIRECTORY PLAN

It asks for more memory until it has it, as an autopilot does. PLAN names what it says wrongly on the way.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.act.restart.channel import ACTION_VARIABLE, Channel, find_own_channel
from penstock.act.restart.job_lock import hold_inherited_lock
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.verdict import Accepted
from penstock.errors import JournalUnavailable
from penstock.journal.former_runs import settle_former_runs
from penstock.journal.store import journal_at

KEY, BEFORE, AFTER = "spark.executor.memory", "1g", "2g"
ASKS_EVERY, BATCH_SECONDS = 20, 0.03
CHECKPOINT = "checkpoint"
"""Where the driver writes, in its directory."""
HOSTILE = (
    '{"kind": "restart", "action": 1e400}',
    "[" * 10_000,
    '{"kind": "batch", "at": "never"}',
    "\x00",
    "{}",
)


class CountingDriver:
    """Counts from where the file ends to the end of the plan."""

    def __init__(self, memory: str, directory: Path, plan: Mapping[str, Any], channel: Channel) -> None:
        self._memory, self._plan, self._channel = memory, plan, channel
        self._journal, self._application = journal_at(plan["journal"]), f"app-{os.getpid()}"
        self._output, self._notes = directory / "output", directory / "notes"
        self._checkpoint = directory / CHECKPOINT
        self._checkpoint.mkdir(exist_ok=True)
        self._stopping = threading.Event()

    def run(self) -> int:
        """Count, and ask for memory now and then; return the exit code."""
        action = os.environ.get(ACTION_VARIABLE, "")
        self._note("start", action)
        spared = frozenset({int(action)} if action else ())
        settle_former_runs(self._journal, "counting", self._application, time.time(), spared)
        said = {"application": self._application, "name": "counting", "settings": {KEY: self._memory}}
        self._channel.say(kind="attached", **said)
        threading.Thread(target=self._listen, daemon=True).start()
        counted = len(self._output.read_text().split()) if self._output.exists() else 0
        for number in range(counted, self._plan["batches"]):
            if self._stopping.wait(BATCH_SECONDS):
                self._channel.say(kind="stopped")
                return 0
            (self._checkpoint / str(number)).write_text("a batch begins")
            with self._output.open("ab", buffering=0) as file:
                file.write(f"{number}\n".encode())
            self._note("batch", str(number))
            self._channel.say(kind="batch", at=time.time(), idle=False)
            if self._memory != AFTER and number % ASKS_EVERY == ASKS_EVERY - 1:
                self._ask()
        return 0

    def _ask(self) -> None:
        """Write down what is wanted, and ask for it; without a journal nothing is asked for."""
        resize = Resize({KEY: AFTER}, "P1: the heap is full", ExpectedEffect(""), before={KEY: BEFORE})
        try:
            now = time.time()
            decision = self._journal.decided(now, self._application, resize, Accepted(resize), "sage")
            action = self._journal.intend(now, self._application, decision, resize, resize.before)
        except JournalUnavailable:
            return
        fault = self._plan.get("input", "")
        asked = {"kind": "restart", "action": action, "settings": {KEY: AFTER}}
        if fault == "input torn":
            self._channel.write(json.dumps(asked).encode()[:20])
        if fault == "input hostile":
            for line in HOSTILE:
                self._channel.write(line.encode())
        for _ in range(2 if fault == "input doubled" else 1):
            self._channel.say(**asked)

    def _listen(self) -> None:
        for message in self._channel.messages():
            if message["kind"] == "stop":
                self._stopping.set()

    def _note(self, kind: str, what: str) -> None:
        with self._notes.open("ab", buffering=0) as file:
            file.write(f"{time.time():.3f} {kind} {self._memory} {what}\n".encode())


def main() -> int:
    """Count with the settings of the command line."""
    hold_inherited_lock()
    channel = find_own_channel()
    assert channel is not None, "a supervisor starts it"
    settings, plan = json.loads(sys.argv[1]), json.loads(sys.argv[3])
    return CountingDriver(settings.get(KEY, BEFORE), Path(sys.argv[2]), plan, channel).run()


if __name__ == "__main__":
    sys.exit(main())
