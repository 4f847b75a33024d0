"""Control groups: their files on stand-in trees, and, where the kernel lets us, a real group."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ActionFailed
from penstock_lab.ground.control_groups import (
    ControlGroup,
    GroupsUnavailable,
    _explain,
    explain_refusal,
    find_hierarchy,
)
from penstock_lab.ground.group_layouts import LEAST_QUOTA_US, PERIOD_US, Version1, Version2, quota_us
from tests.lab.ground.group_trees import make_version_1, make_version_2, read_settings
from tests.waiting import wait_for

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "microseconds"), [(None, None), (0.15, 15_000), (1.0, 100_000), (2.5, 250_000), (0.0001, 1_000)]
)
def test_quota_of_cores(cores, microseconds):
    assert quota_us(cores) == microseconds


@given(st.floats(min_value=0.001, max_value=512))
def test_quota_is_the_share_of_a_period_and_never_below_what_the_kernel_takes(cores):
    assert quota_us(cores) == pytest.approx(max(LEAST_QUOTA_US, cores * PERIOD_US), abs=0.5)


def test_version_1_has_a_directory_per_controller_below_the_own_group(tmp_path):
    group = find_hierarchy(tmp_path, make_version_1(tmp_path)).make("host")
    assert group.folders == {
        "cpu": tmp_path / "cpu/jobs/mine/host",
        "cpuacct": tmp_path / "cpuacct/jobs/mine/host",
        "memory": tmp_path / "memory/jobs/mine/host",
        "freezer": tmp_path / "freezer/host",
    }
    group.limit_cpu(0.15)
    assert read_settings(group.folders["cpu"]) == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "15000"}
    group.limit_cpu(None)
    assert read_settings(group.folders["cpu"])["cpu.cfs_quota_us"] == "-1"
    group.limit_memory(GIB)
    assert read_settings(group.folders["memory"]) == {"memory.limit_in_bytes": str(GIB)}
    group.freeze()
    assert read_settings(group.folders["freezer"]) == {"freezer.state": "FROZEN"}
    group.thaw()
    assert read_settings(group.folders["freezer"]) == {"freezer.state": "THAWED"}


def test_version_1_counts_swap_where_the_kernel_does(tmp_path):
    settings = Version1().limit_memory(GIB, swap_counts=True)
    assert [(setting.file, setting.value) for setting in settings] == [
        ("memory.memsw.limit_in_bytes", -1),
        ("memory.limit_in_bytes", GIB),
        ("memory.memsw.limit_in_bytes", GIB),
    ]
    (memory, swap) = Version2().limit_memory(GIB, swap_counts=True)
    assert (memory.value, swap.file, swap.value) == (GIB, "memory.swap.max", 0)


@pytest.mark.parametrize("passed_on", ["", "cpu memory"])
def test_version_2_has_one_directory_beside_the_own_group_which_holds_processes(tmp_path, passed_on):
    group = find_hierarchy(tmp_path, make_version_2(tmp_path, passed_on)).make("host")
    assert group.directories == [tmp_path / "jobs" / "host"]
    assert (tmp_path / "jobs/cgroup.subtree_control").read_text() == (passed_on or "+cpu +memory")
    (folder,) = group.directories
    (folder / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    group.limit_cpu(0.15)
    group.limit_memory(GIB)
    group.freeze()
    found = read_settings(folder)
    assert (found["cpu.max"], found["memory.max"], found["cgroup.freeze"]) == ("15000 100000", str(GIB), "1")
    group.limit_cpu(None)
    group.thaw()
    found = read_settings(folder)
    assert (found["cpu.max"], found["cgroup.freeze"]) == ("max 100000", "0")


def test_figures_of_version_1():
    layout = Version1()
    assert layout.cpu_seconds.find_in("2500000000\n") == 2.5
    assert layout.throttled_seconds.find_in("nr_periods 3\nthrottled_time 1500000000\n") == 1.5
    assert layout.memory_kills.find_in("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n") == 2
    assert layout.resident_bytes.find_in("rss 1\ntotal_rss 4096\n") == 4096


def test_figures_of_version_2():
    layout = Version2()
    stat = "usage_usec 2500000\nuser_usec 1\nthrottled_usec 1500000\n"
    assert layout.cpu_seconds.find_in(stat) == 2.5
    assert layout.throttled_seconds.find_in(stat) == 1.5
    assert layout.throttled_seconds.find_in("usage_usec 1\n") == 0, "before the first quota"
    assert layout.memory_kills.find_in("low 0\nmax 7\noom 1\noom_kill 1\n") == 1
    assert layout.resident_bytes.find_in("anon 4096\nfile 77\n") == 4096


@pytest.mark.parametrize("make_tree", [make_version_1, make_version_2])
def test_groups_are_found_by_the_beginning_of_their_names_wherever_they_lie(tmp_path, make_tree):
    hierarchy = find_hierarchy(tmp_path, make_tree(tmp_path))
    made = [hierarchy.make(name) for name in ("ground-1-a", "ground-2-b", "other")]
    assert [group.name for group in hierarchy.find("ground-")] == ["ground-1-a", "ground-2-b"]
    elsewhere = find_hierarchy(tmp_path, "")
    assert [group.folders for group in elsewhere.find("ground-")] == [group.folders for group in made[:2]]


def test_a_group_that_is_half_removed_is_found_and_removed(tmp_path):
    hierarchy = find_hierarchy(tmp_path, make_version_1(tmp_path))
    hierarchy.make("ground-1").folders["cpu"].rmdir()
    (group,) = hierarchy.find("ground-1")
    assert set(group.folders) == {"cpuacct", "memory", "freezer"}
    group.kill()
    group.remove()
    assert not hierarchy.find("ground-1")
    group.remove()


def test_a_path_that_only_the_host_of_a_container_knows_means_the_top(tmp_path):
    make_version_1(tmp_path)
    hierarchy = find_hierarchy(
        tmp_path, "2:cpu,cpuacct:/docker/4f\n5:memory:/docker/4f\n3:freezer:/docker/4f\n"
    )
    assert hierarchy.make("host").folders["memory"] == tmp_path / "memory" / "host"


def test_missing_controllers_are_named(tmp_path):
    membership = make_version_1(tmp_path)
    (tmp_path / "freezer" / "cgroup.procs").unlink()
    assert explain_refusal(tmp_path, membership) == (
        f"{tmp_path} has no control groups for freezer; a Linux that mounts them is needed"
    )
    assert "cpu, cpuacct, memory, freezer" in (explain_refusal(tmp_path / "nowhere") or "")


def test_a_kernel_that_makes_no_directory_is_quoted_and_nothing_is_left(tmp_path):
    membership = make_version_1(tmp_path)
    mine = tmp_path / "memory" / "jobs" / "mine"
    (mine / "cgroup.procs").unlink()
    mine.rmdir()
    mine.symlink_to("/sys/kernel")  # where not even root makes directories
    with pytest.raises(
        GroupsUnavailable, match=r"^the control group host cannot be made: Operation not perm.*root"
    ):
        find_hierarchy(tmp_path, membership).make("host")
    assert not list(tmp_path.rglob("host"))


def test_version_2_where_no_group_passes_controllers_on(tmp_path):
    membership = make_version_2(tmp_path)
    (tmp_path / "jobs/cgroup.procs").write_text("12\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    assert find_hierarchy(tmp_path, membership).parents["cpu"] == tmp_path, "the top may hold processes"
    (tmp_path / "cgroup.subtree_control").unlink()
    (tmp_path / "cgroup.subtree_control").symlink_to("/proc/version")  # can be read, not written
    reason = explain_refusal(tmp_path, membership) or ""
    assert reason.startswith("no control group passes cpu and memory on to new ones: ")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "; run as root, or in a group that was delegated to you"),
        (errno.EROFS, "; the container mounts control groups read-only; start it with writable ones"),
        (errno.EBUSY, "; processes live in that group itself; ask the service manager for a delegated one"),
        (errno.EINVAL, ""),
    ],
)
def test_what_the_kernel_says_comes_with_advice(number, advice):
    said = os.strerror(number)
    assert str(_explain("it fails", OSError(number, said))) == f"it fails: {said}{advice}"


@pytest.fixture
def real_group():
    """Return a group of the kernel's; where it makes none, the refusal is what there is to see."""
    refusal = explain_refusal()
    if refusal is not None:
        with pytest.raises(GroupsUnavailable) as raised:
            find_hierarchy().make("penstock-test")
        assert str(raised.value) in refusal
        yield None
        return
    group = find_hierarchy().make(f"penstock-test-{os.getpid()}-{time.monotonic_ns()}")
    yield group
    group.kill()
    group.remove()
    assert not any(folder.exists() for folder in group.directories)


def start_counting(group: ControlGroup, file: Path) -> subprocess.Popen[bytes]:
    """Start a process in the group that starts another one, which writes ever higher numbers."""
    inner = f"n=0; while true; do n=$((n + 1)); echo $n > {file}.new; mv {file}.new {file}; done"
    return subprocess.Popen(group.enter(["/bin/sh", "-c", f"({inner}) & wait"]))


@contextmanager
def keep_counting(group: ControlGroup, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Count in the group, from the first number on, until the end of the block."""
    parent = start_counting(group, file)
    try:
        wait_for("a first count", lambda: read_count(file))
        yield parent
    finally:
        group.kill()
        parent.wait()


def read_count(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


def test_a_real_group_freezes_goes_on_and_dies_with_its_children(real_group, tmp_path):
    if real_group is None:
        return
    file = tmp_path / "count"
    with keep_counting(real_group, file) as parent:
        assert parent.pid in real_group.processes() and len(real_group.processes()) > 1
        real_group.freeze()
        frozen = read_count(file)
        used = real_group.cpu_seconds()
        assert [read_count(file) for _ in range(100)] == [frozen] * 100
        assert real_group.cpu_seconds() == used > 0
        real_group.thaw()
        wait_for("a higher count", lambda: read_count(file) > frozen)
        real_group.freeze()
        real_group.kill()
        assert not real_group.processes()


def test_a_real_group_freezes_while_its_processes_start_others(real_group, tmp_path):
    if real_group is None:
        return
    with keep_counting(real_group, tmp_path / "count"):
        for _ in range(100):
            real_group.freeze()
            real_group.thaw()


def test_a_real_quota_throttles(real_group, tmp_path):
    if real_group is None:
        return
    real_group.limit_cpu(0.02)
    parent = start_counting(real_group, tmp_path / "count")
    try:
        wait_for("waiting for the next period", lambda: real_group.throttled_seconds() > 0)
    finally:
        real_group.kill()
        parent.wait()


def test_a_real_memory_limit_kills(real_group):
    if real_group is None:
        return
    real_group.limit_memory(64 << 20)
    eating = subprocess.run(real_group.enter([sys.executable, "-c", "b'x' * (200 << 20)"]), check=False)
    assert eating.returncode == -9
    assert real_group.memory_kills() == 1


def test_a_directory_that_cannot_be_removed_is_told(tmp_path):
    group = find_hierarchy(tmp_path, make_version_1(tmp_path)).make("host")
    group.limit_cpu(1)
    with pytest.raises(ActionFailed, match="cpu/jobs/mine/host cannot be removed: Directory not empty"):
        group.remove()
