"""A controller in a process of its own, over a world that is a file: JOURNAL WORLD LEASE_SECONDS.

The world is a line for each effect: term, action, size. Controllers want it to grow by one for ever.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from penstock.dataflow.window import EXECUTORS
from penstock.journal.leading import Leadership, LeaseKeeper
from penstock.journal.store import open_journal
from penstock.pipeline.leader import close_left_open
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Ports
from tests.fakes import AgreeingManager, a_scale, a_window, an_outcome


class World:
    """What there is, as the file says."""

    def __init__(self, path):
        self.path = path

    def size(self):
        lines = self.lines()
        return int(lines[-1].split()[2]) if lines else 1

    def lines(self):
        return self.path.read_text(encoding="ascii").splitlines()

    def write(self, line):
        with self.path.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode("ascii"))


class Growing:
    """The policy and the source in one: one more than there is."""

    name = "growing"

    def __init__(self, world, application):
        self.world, self.application = world, application

    def observe(self, now):
        return a_window(now, self.world.size(), seconds=0.001, application=self.application)

    def propose(self, window):
        return a_scale(window.parallelism[EXECUTORS] + 1)


class WorldActuator:
    """An effect is one line, written at once; a moment before it there is time to die."""

    def __init__(self, world, journal, application, keeper):
        self.world, self.journal, self.application, self.keeper = world, journal, application, keeper
        self.wanted = 0

    def begin(self, now, action):
        (mine,) = self.journal.unfinished(self.application)
        time.sleep(0.02)
        self.wanted = action.parallelism[EXECUTORS]
        self.world.write(f"{self.keeper.lease.term} {mine.action_id} {self.wanted}")
        time.sleep(0.02)

    def poll(self, now):
        return an_outcome(self.wanted)

    def abandon(self):
        """Nothing is half-done."""

    def held(self):
        return {EXECUTORS: self.world.size()}


def main(url, world_path, seconds):
    journal, world, application = open_journal(url), World(Path(world_path)), f"controller-{os.getpid()}"
    keeper = LeaseKeeper(Leadership(journal.leases, "world", application, float(seconds)))
    journal = journal.bind_to(lambda: keeper.lease)
    keeper.start()
    loop, term = None, 0
    while True:
        lease = keeper.lease
        if lease is None:
            loop = None
        elif loop is None or lease.term != term:
            term = lease.term
            actuator = WorldActuator(world, journal, application, keeper)
            close_left_open(journal, keeper.leadership.before, actuator.held(), time.time())
            both = Growing(world, application)
            settings = LoopSettings(policy_interval=0.01)
            loop = Loop(application, Ports(both, both, AgreeingManager(), journal, actuator), settings)
        if loop is not None:
            loop.tick(time.time())
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
