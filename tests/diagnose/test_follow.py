"""Logs that grow: only whole lines, each once, whatever the codec and the cut; windows as they are over."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.follow import FollowedLog, drop_old
from penstock.diagnose.log.files import find_growth, find_logs, mark_logs, read_tail
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from tests.diagnose.logs import BASE, many_jobs, skewed_job
from tests.diagnose.packers import PACKERS, growing

WINDOW_US = 2_000_000


def tails(path, marks):
    """The lines since these marks, and the marks of now."""
    found = mark_logs(path)
    lines = [
        line
        for log, files in found.items()
        for tail in find_growth(marks.get(log, {}), files)
        for line in read_tail(type(path)(log), *tail)
    ]
    return lines, found


@pytest.mark.parametrize("codec", ["", *PACKERS])
def test_each_line_comes_once_as_soon_as_it_is_whole(tmp_path, codec):
    lines = skewed_job().lines
    text = b"".join(line + b"\n" for line in lines)
    cuts = [0, 40, 41, len(text) // 3, len(text) // 2, len(text) - 1, len(text)]
    pieces = [text[low:high] for low, high in pairwise(cuts)]
    path = tmp_path / f"app-1{'.' + codec if codec else ''}.inprogress"
    marks, got, written = {}, [], b""
    for piece, content in zip(pieces, growing(codec, pieces), strict=True):
        path.write_bytes(content)
        new, marks = tails(tmp_path, marks)
        got += new
        written += piece
        assert got == written.split(b"\n")[:-1]
    path.rename(path.with_name(path.name.removesuffix(".inprogress")))
    assert tails(tmp_path, marks) == ([], marks)
    assert got == lines


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["", *PACKERS]), st.data())
def test_a_file_cut_at_any_byte_gives_its_whole_lines_once(tmp_path_factory, codec, data):
    folder = tmp_path_factory.mktemp("logs")
    lines = skewed_job().lines
    text = b"".join(line + b"\n" for line in lines)
    whole = PACKERS[codec](text) if codec else text
    cuts = [*sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4))), len(whole)]
    path = folder / f"app-1{'.' + codec if codec else ''}"
    marks, got = {}, []
    for cut in cuts:
        path.write_bytes(whole[:cut])
        new, marks = tails(folder, marks)
        got += new
        assert got == lines[: len(got)]
    assert got == lines


def test_rolled_files_go_on_and_compaction_is_not_read_twice(tmp_path):
    log = tmp_path / "eventlog_v2_app-1"
    log.mkdir()
    (log / "appstatus_app-1.inprogress").touch()
    (log / "events_1_app-1").write_bytes(b"a\nb\n")
    lines, marks = tails(tmp_path, {})
    assert lines == [b"a", b"b"]
    (log / "events_1_app-1").write_bytes(b"a\nb\nc\n")
    (log / "events_2_app-1").write_bytes(b"d\ne")
    lines, marks = tails(tmp_path, marks)
    assert lines == [b"c", b"d"]
    (log / "events_2_app-1").write_bytes(b"d\ne\n")
    (log / "events_2_app-1.compact").write_bytes(b"d\n")
    (log / "events_10_app-1").write_bytes(b"f\n")
    assert tails(tmp_path, marks)[0] == [b"f"]


def test_a_file_that_has_gone_is_passed_over(tmp_path):
    assert list(read_tail(tmp_path / "gone", "events_1_app", 0, 10)) == []
    assert mark_logs(tmp_path / "gone") == {}


def test_finished_logs_can_be_told_from_those_still_written(tmp_path):
    (tmp_path / "app-1").write_bytes(b"a\n")
    (tmp_path / "app-2.inprogress").write_bytes(b"a\n")
    assert set(mark_logs(tmp_path, finished_only=True)) == {str(tmp_path / "app-1")}


def fed(lines, size):
    """Follows a log that grows by so many lines at a time, through the form in which state is kept."""
    followed, told = FollowedLog(WINDOW_US), []
    for low in range(0, len(lines), size):
        followed, windows = pickle.loads(pickle.dumps(followed)).take_lines(lines[low : low + size])
        told += windows
    return followed, told


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_windows_of_a_growing_log_equal_those_of_the_finished_one(size):
    lines = skewed_job().lines
    whole = diagnose_log(read_log(lines), Span(window_us=WINDOW_US))
    followed, told = fed(lines, size)
    assert followed.ended
    assert [summary.start_us for summary, _ in told] == [summary.start_us for summary in whole.windows]
    last, _ = told[-1]
    assert last.worker == pytest.approx(whole.windows[-1].worker, abs=0.05)
    assert [sum(summary.activity.values()) for summary, _ in told] == pytest.approx([1.0] * len(told))
    # the task that holds the job up runs from 2 s to 8 s, and is not over when these windows are told
    for summary, answer in told[2:4]:
        assert max(summary.worker, key=summary.worker.get).startswith("executor 2 slot")
        assert "is running tasks" in answer


def test_what_is_kept_of_a_long_log_does_not_grow():
    lines = many_jobs(300).lines
    followed, sizes = FollowedLog(WINDOW_US), []
    for low in range(0, len(lines) - 1, 40):
        followed, _ = followed.take_lines(lines[low : low + 40])
        sizes.append(len(pickle.dumps(followed)))
    assert max(sizes[20:]) <= 1.5 * max(sizes[:10])
    assert len(followed.log.tasks) < 30
    assert followed.log.executors["1"].cores == 2


def test_trimming_keeps_what_is_still_open():
    log = read_log(skewed_job().lines[:-3])
    kept = drop_old(log, BASE + 7000)
    assert len(kept.tasks) == len(log.tasks)
    assert kept.start == BASE + 1000
    done = drop_old(read_log(skewed_job().lines), BASE + 8100)
    assert (len(done.tasks), done.jobs, done.stages) == (0, {}, {})


def test_lzf_is_read_like_any_other(tmp_path):
    text = b"".join(line + b"\n" for line in many_jobs(100).lines)
    path = tmp_path / "app-1.lzf"
    path.write_bytes(PACKERS["lzf"](text))
    assert path.stat().st_size < len(text) / 3
    assert b"".join(line + b"\n" for line in find_logs(path)[0].read_lines()) == text


@pytest.mark.parametrize("broken", [b"ZV", b"ZV\x01\x00\x02\x00\x09\x20\x05", b"ZV\x01\x00\x01\x00\x09\x1f"])
def test_broken_lzf_ends_without_an_error(tmp_path, broken):
    path = tmp_path / "app-1.lzf"
    path.write_bytes(PACKERS["lzf"](b"first\n") + broken)
    assert list(find_logs(path)[0].read_lines()) == [b"first"]
