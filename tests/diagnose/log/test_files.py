"""Which files are one log, and how each is packed."""

from __future__ import annotations

import gzip
import json

import pytest

from penstock.diagnose.diagnosis import diagnose_path
from penstock.diagnose.log.files import find_logs, read_tail
from penstock.diagnose.log.reader import read_application, read_log
from penstock.diagnose.path.spans import Span
from penstock.errors import BadInput
from tests.diagnose.logs import skewed_job
from tests.diagnose.packers import PACKERS


def join(lines):
    return b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize("name", ["app-1", "app-1.zstd", "app-1.gz", "app-1.lz4", "app-1.txt"])
@pytest.mark.parametrize("codec", ["", *PACKERS])
def test_the_content_tells_how_a_log_is_packed(tmp_path, codec, name):
    content = join(skewed_job().lines)
    path = tmp_path / name
    path.write_bytes(PACKERS[codec](content) if codec else content)
    assert len(read_application(find_logs(path)[0]).tasks) == 8
    tail = list(read_tail(path, name, 0, path.stat().st_size))
    assert len(read_log(tail).tasks) == 8


def test_an_archive_is_refused_whatever_its_name(tmp_path):
    path = tmp_path / "app-1"
    path.write_bytes(b"PK\x03\x04rest")
    with pytest.raises(BadInput, match="app-1: is a zip archive; unpack it"):
        read_application(find_logs(path)[0])


def test_parts_of_one_application_are_one_log(tmp_path):
    """As a vendor rolls them: parts by date, packed, and the newest one without a date."""
    lines = skewed_job().lines
    (tmp_path / "eventlog-2026-01-31--10-00.gz").write_bytes(gzip.compress(join(lines[:9])))
    (tmp_path / "eventlog-2026-01-31--11-00.gz").write_bytes(gzip.compress(join(lines[9:15])))
    (tmp_path / "eventlog").write_bytes(join(lines[15:]))
    (found,) = find_logs(tmp_path)
    assert [file.name[-8:] for file in found.files] == ["10-00.gz", "11-00.gz", "eventlog"]
    log = read_application(found)
    assert (log.application, len(log.tasks), log.is_complete) == ("app-1", 8, True)


def test_files_that_continue_the_only_application_are_its_parts(tmp_path):
    lines = skewed_job().lines
    for number, part in enumerate((lines[:9], lines[9:15], lines[15:]), start=9):
        (tmp_path / f"app-1.{number}").write_bytes(join(part))
    (found,) = find_logs(tmp_path)
    assert [file.name for file in found.files] == ["app-1.9", "app-1.10", "app-1.11"]
    assert len(read_application(found).tasks) == 8


def test_parts_of_several_applications_go_by_the_name_of_their_first(tmp_path):
    for name in ("app-1", "app-2"):
        lines = [line.replace(b'"app-1"', json.dumps(name).encode()) for line in skewed_job().lines]
        (tmp_path / name).write_bytes(join(lines[:9]))
        (tmp_path / f"{name}.1").write_bytes(join(lines[9:]))
    (tmp_path / "notes.txt").write_text("nothing of Spark")
    found = [log for log in find_logs(tmp_path) if log.path.name.startswith("app")]
    assert [[file.name for file in log.files] for log in found] == [
        ["app-1", "app-1.1"],
        ["app-2", "app-2.1"],
    ]


def test_two_whole_logs_stay_two(tmp_path):
    for name in ("app-1", "app-1.copy"):
        (tmp_path / name).write_bytes(join(skewed_job().lines))
    assert len(find_logs(tmp_path)) == 2


def test_attempts_are_told_apart(tmp_path):
    for attempt in "12":
        lines = skewed_job().lines
        start = json.loads(lines[1]) | {"App Attempt ID": attempt}
        (tmp_path / f"app-1_{attempt}").write_bytes(join([lines[0], json.dumps(start).encode(), *lines[2:]]))
    names = [(one.application, one.name) for one in diagnose_path(tmp_path, Span())]
    assert names == [("app-1", "demo, attempt 1"), ("app-1", "demo, attempt 2")]
