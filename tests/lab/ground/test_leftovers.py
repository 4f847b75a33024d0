"""Groups and directories of dead owners are removed; those of living ones stay."""

import os
import signal
import subprocess
import sys

import pytest

from penstock_lab.ground.control_groups import explain_refusal, find_hierarchy
from penstock_lab.ground.leftovers import PREFIX, Owner, find_start, remove_leftovers
from tests.lab.ground.group_trees import make_version_1, make_version_2
from tests.waiting import wait_for


def stat_line(pid, name, state, started):
    """A line of /proc/<pid>/stat: the start is its 22nd field."""
    return f"{pid} ({name}) {state} " + " ".join("0" for _ in range(18)) + f" {started} 0 0\n"


@pytest.fixture
def processes(tmp_path):
    """Processes 10 (a name with a parenthesis), 11 and a zombie, 12."""
    directory = tmp_path / "proc"
    for pid, name, state, started in (
        (10, "a) b (c", "S", 500),
        (11, "java", "R", 900),
        (12, "java", "Z", 700),
    ):
        (directory / str(pid)).mkdir(parents=True)
        (directory / str(pid) / "stat").write_text(stat_line(pid, name, state, started))
    return directory


def test_starts_of_processes(processes):
    assert [find_start(pid, processes) for pid in (10, 11, 12, 13)] == [500, 900, None, None]


def test_an_owner_is_in_the_name():
    me = Owner.this_process()
    names = [me.next_name() for _ in range(2)]
    assert len(set(names)) == 2
    assert {Owner.named_in(name) for name in (*names, f"{names[0]}-worker-3")} == {me}
    assert me.is_running() and me.pid == os.getpid()
    assert Owner.named_in("penstock-ground-") is None and Owner.named_in("penstock-1-2-3") is None


@pytest.mark.parametrize("make_tree", [make_version_1, make_version_2])
def test_only_what_dead_owners_left_is_removed(tmp_path, processes, make_tree):
    mount, directories = tmp_path / "mount", tmp_path / "tmp"
    mount.mkdir()
    hierarchy = find_hierarchy(mount, make_tree(mount))
    alive, reused, zombie, gone = (f"{PREFIX}{owner}-1" for owner in ("10-500", "11-800", "12-700", "13-100"))
    for name in (alive, reused, zombie, gone):
        hierarchy.make(f"{name}-worker-1")
        (directories / name / "conf").mkdir(parents=True)
    hierarchy.make("somebody-else")
    (directories / "penstock-other").mkdir()

    removed = remove_leftovers(hierarchy, directories, processes)

    assert sorted(removed) == sorted(
        [*(f"{n}-worker-1" for n in (reused, zombie, gone)), reused, zombie, gone]
    )
    assert [group.name for group in hierarchy.find(PREFIX)] == [f"{alive}-worker-1"]
    assert sorted(found.name for found in directories.iterdir()) == [alive, "penstock-other"]
    assert hierarchy.find("somebody-else")


def test_processes_of_another_namespace_are_left_alone(tmp_path, processes):
    mount = tmp_path / "mount"
    mount.mkdir()
    hierarchy = find_hierarchy(mount, make_version_1(mount))
    group = hierarchy.make(f"{PREFIX}13-100-1-worker-1")
    (group.folders["cpu"] / "cgroup.procs").write_text("0\n")
    assert not remove_leftovers(hierarchy, tmp_path / "tmp", processes)
    assert hierarchy.find(PREFIX)


CRASHING = """
import os, subprocess, sys, time
from penstock_lab.ground.control_groups import find_hierarchy
from penstock_lab.ground.leftovers import Owner

group = find_hierarchy().make(Owner.this_process().next_name() + "-worker-1")
subprocess.Popen(group.enter(["sleep", "600"]))
while not group.processes():
    time.sleep(0.01)
print(group.name, flush=True)
sys.stdin.read()
"""


def test_after_a_crash_the_next_ground_removes_groups_and_processes(tmp_path):
    refusal = explain_refusal()
    owner = subprocess.Popen(
        [sys.executable, "-c", CRASHING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        name = owner.stdout.readline().decode().strip()
        if refusal is not None:
            assert b"GroupsUnavailable" in owner.stderr.read()
            return
        hierarchy = find_hierarchy()
        (group,) = hierarchy.find(name)
        (sleeper,) = group.processes()
        assert name not in remove_leftovers(hierarchy, tmp_path), "its owner runs"
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        remove_leftovers(hierarchy, tmp_path)
        assert not hierarchy.find(name)
        wait_for("the end of the process", lambda: find_start(sleeper) is None)
    finally:
        owner.kill()
        owner.communicate()
