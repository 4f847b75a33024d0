"""Disks that are full and networks that are cut, where this user may make them; elsewhere that is refused."""

from __future__ import annotations

import os
import socket
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.errors import ActionFailed, JournalUnavailable
from penstock.journal.databases import PostgresDatabase
from penstock.journal.store import Journal
from penstock_lab.experiments.faults.disks import LoopDisk
from penstock_lab.experiments.faults.journals import open_place
from penstock_lab.experiments.faults.matrix import FILE_FAULTS
from penstock_lab.experiments.faults.network import OwnNetwork
from penstock_lab.ground.postgres_server import postgres_server


@contextmanager
def allowed_to_root():
    """Where this is not root, the refusal is what is tested."""
    if os.geteuid() == 0:
        yield
    else:
        with pytest.raises(ActionFailed):
            yield


def can_connect(address: str) -> bool:
    with socket.socket() as server:
        try:
            server.bind((address, 0))
            server.listen()
            socket.create_connection(server.getsockname(), 1.0).close()
        except OSError:
            return False
        return True


def test_one_host_is_cut_off_and_no_other():
    with allowed_to_root(), OwnNetwork() as network:
        assert can_connect("127.0.2.3")
        network.cut("127.0.2.3")
        assert not can_connect("127.0.2.3") and can_connect("127.0.2.4")
        network.join("127.0.2.3")
        assert can_connect("127.0.2.3")
    assert can_connect("127.0.0.1")


def test_a_journal_whose_server_is_cut_off_is_away_and_comes_back():
    with allowed_to_root(), OwnNetwork() as network, postgres_server() as server:
        journal = Journal(PostgresDatabase(server.new_database(), silent_seconds=1.0))
        with closing(journal):
            journal.remember(1.0, "app", "kind", "before", {})
            network.cut("127.0.0.1")
            with pytest.raises(JournalUnavailable):
                journal.remember(2.0, "app", "kind", "lost", {})
            network.join("127.0.0.1")
            journal.remember(3.0, "app", "kind", "after", {})
            assert set(journal.recall("app", "kind")) == {"before", "after"}


def test_a_disk_that_is_full_takes_nothing_until_it_is_emptied(tmp_path: Path):
    with allowed_to_root(), LoopDisk(tmp_path / "disk", megabytes=4) as disk:
        disk.fill()
        with pytest.raises(OSError, match="No space"):
            (disk.path / "more").write_bytes(b"x" * 100_000)
        disk.empty()
        (disk.path / "more").write_bytes(b"x" * 100_000)
        disk.slow_down(0.1)
        (disk.path / "after").write_bytes(b"x")


@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_a_journal_with_a_fault_writes_nothing_and_again_afterwards(fault: str):
    with allowed_to_root(), open_place(fault) as place:
        journal = place.open()
        journal.remember(1.0, "app", "kind", "before", {})
        place.strike()
        if fault == "journal deleted":
            assert journal.recall("app", "kind") == {}
        else:
            with pytest.raises(JournalUnavailable):
                journal.remember(1.0, "app", "kind", "lost", {})
        place.mend()
        journal.remember(1.0, "app", "kind", "after", {})
        known = {"after"} if fault == "journal deleted" else {"before", "after"}
        assert set(journal.recall("app", "kind")) == known
        journal.close()
