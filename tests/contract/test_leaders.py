"""Several real controller processes on one journal: killed and stopped at any moment, one leads."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.errors import JournalUnavailable
from penstock.journal.store import Journal, open_journal
from tests.waiting import wait_for

LEASE_SECONDS = 2.0
ROOT = Path(__file__).parents[2]
Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    return str(request.getfixturevalue("server").new_database())


@pytest.fixture
def journal(url: str) -> Iterator[Journal]:
    opened = open_journal(url)
    yield opened
    opened.close()


@pytest.fixture
def world(tmp_path: Path) -> Path:
    path = tmp_path / "world"
    path.touch()
    return path


@pytest.fixture
def start(url: str, world: Path, journal: Journal) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def one() -> subprocess.Popen[bytes]:
        arguments = ["-m", "tests.pipeline.controller_process", url, str(world), str(LEASE_SECONDS)]
        started.append(subprocess.Popen([sys.executable, *arguments], cwd=ROOT))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.wait()


def lines(world: Path) -> list[tuple[int, int, int]]:
    whole = [line.split() for line in world.read_text().splitlines()]
    return [(int(term), int(action), int(size)) for term, action, size in whole]


def leader(journal: Journal) -> int:
    lease = journal.leases.seen("world")
    return int(lease.holder.rpartition("-")[2]) if lease is not None else 0


def stop_between_writes(process: subprocess.Popen[bytes], journal: Journal) -> None:
    """Send a process to sleep where it holds no lock: in the middle of a write it would keep others out."""
    for _ in range(20):
        os.kill(process.pid, signal.SIGSTOP)
        try:
            journal.remember(0.0, "test", "probe", "probe", {})
            return
        except JournalUnavailable:
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.01)
    raise AssertionError("it was always found in the middle of a write")


def check_once(journal: Journal, world: Path) -> None:
    """Every effect was intended, by the leader of its time, and was done once; every size came once."""
    seen, records = lines(world), {record.action_id: record for record in journal.actions()}
    actions = [action for _, action, _ in seen]
    assert len(set(actions)) == len(actions) and set(actions) <= set(records)
    assert [size for _, _, size in seen] == list(range(2, len(seen) + 2))
    assert [term for term, _, _ in seen] == sorted(term for term, _, _ in seen)
    holders = [record.application for _, record in sorted(records.items())]
    changes = sum(one != other for one, other in pairwise(holders))
    assert changes == len(set(holders)) - 1, "an earlier leader went on after a later one"


def test_leaders_are_killed_at_any_moment_and_nothing_is_done_twice(
    start: Start, journal: Journal, world: Path
):
    processes = {process.pid: process for process in (start(), start())}
    seeds = random.Random(5)
    for _ in range(3):
        before = len(lines(world))
        wait_for("effects", lambda known=before: len(lines(world)) > known + 2)
        time.sleep(seeds.uniform(0.0, 0.1))
        killed = leader(journal)
        os.kill(killed, signal.SIGKILL)
        processes[killed].wait()
        known = len(lines(world))
        newcomer = start()
        processes[newcomer.pid] = newcomer
        wait_for("another leader's effect", lambda known=known: len(lines(world)) > known)
        assert leader(journal) not in (0, killed)
    for process in processes.values():
        process.kill()
        process.wait()
    check_once(journal, world)
    open_now = [record for record in journal.actions() if record.status is None]
    assert len(open_now) <= 1 and all(int(r.application.rpartition("-")[2]) in processes for r in open_now)


def test_a_leader_that_slept_too_long_changes_nothing_more(start: Start, journal: Journal, world: Path):
    first = start()
    wait_for("an effect", lambda: len(lines(world)) > 0)
    second = start()
    stop_between_writes(first, journal)
    wait_for("a takeover", lambda: leader(journal) == second.pid)
    os.kill(first.pid, signal.SIGCONT)
    known = len(lines(world))
    wait_for("more effects", lambda: len(lines(world)) > known + 5)
    assert leader(journal) == second.pid
    records = journal.actions()
    taken_over = next(n for n, one in enumerate(records) if one.application.endswith(str(second.pid)))
    assert {record.application for record in records[taken_over:]} == {f"controller-{second.pid}"}
    assert not [record for record in records[:taken_over] if record.status is None]
