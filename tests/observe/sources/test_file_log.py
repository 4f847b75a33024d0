"""Spark's log of a file source is read as it is written: entry by entry, or from a compact file's end."""

from __future__ import annotations

import json
import math

import pytest

from penstock.errors import BadMetrics
from penstock.observe.sources.file_log import LoggedFile, choose_unread, is_hidden, parse_log, plain_path
from penstock.observe.sources.file_watch import FileWatch, LocalPlace, LogReader
from penstock.observe.sources.listing import ListingRule, LocalListing


def line(name, entry, modified=1.5):
    return json.dumps(
        {"path": f"file:///in/{name}", "timestamp": round(modified * 1000), "batchId": entry},
        separators=(",", ":"),
    )


def write(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(["v1", *lines]))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///data/in%20dir/a%25.json", "/data/in dir/a%.json"),
        ("file:/data/in/a.json", "/data/in/a.json"),
        ("hdfs://host:9000/in/a%20b.json", "hdfs://host:9000/in/a b.json"),
    ],
)
def test_a_path_of_the_log_is_that_of_a_listing(url, path):
    assert plain_path(url) == path


def test_an_entry_of_the_log():
    text = 'v1\n{"path":"file:///in/a.json","timestamp":1794954645010,"batchId":4}\n'
    assert parse_log(text) == [LoggedFile("/in/a.json", 1794954645.01, 4)]


@pytest.mark.parametrize(
    "text", ["", '{"path":"a"}', "v1\n{}", "v1\nnot JSON", 'v1\n{"path":"a","batchId":1}']
)
def test_what_is_no_log_is_told(text):
    with pytest.raises(BadMetrics):
        parse_log(text)


def test_the_first_line_of_a_part_is_cut_off():
    assert [file.path for file in parse_log(f'"batchId":3}}\n{line("b", 4)}', cut_off=True)] == ["/in/b"]


@pytest.mark.parametrize(
    ("names", "after", "chosen"),
    [
        (["0", "1", "2", ".0.crc", ".3.abc.tmp"], -1, ["0", "1", "2"]),
        (["0", "1", "2"], 1, ["2"]),
        (["0", "1", "2"], 2, []),
        ([], -1, []),
        (["8", "9.compact", "10", "11"], -1, ["9.compact", "10", "11"]),
        (["8", "9.compact", "10"], 8, ["9.compact", "10"]),
        (["8", "9.compact", "10"], 7, ["8", "9.compact", "10"]),
        # entries 6 to 18 were removed while nobody looked
        (["19.compact", "20"], 5, ["19.compact", "20"]),
        (["9.compact", "19.compact", "20"], 5, ["19.compact", "20"]),
    ],
)
def test_which_files_of_the_log_are_read(names, after, chosen):
    assert [one.name for one in choose_unread(names, after)] == chosen


def test_every_entry_is_read_once(tmp_path):
    log = LogReader(LocalPlace(), str(tmp_path / "log"))
    assert log.read_new() == ((), -math.inf)
    write(tmp_path / "log", "0", line("a", 0), line("b", 0))
    assert [file.path for file in log.read_new()[0]] == ["/in/a", "/in/b"]
    assert log.read_new()[0] == ()
    write(tmp_path / "log", "1.compact", line("a", 0), line("b", 0), line("c", 1))
    write(tmp_path / "log", "2", line("d", 2))
    assert [(file.path, file.entry) for file in log.read_new()[0]] == [("/in/c", 1), ("/in/d", 2)]


def test_of_a_long_compact_file_the_end_is_read(tmp_path):
    """200,000 files are some 14 MB; the newest entry has three."""
    history = [line(f"{n:060}", n // 1000, n) for n in range(200_000)]
    write(tmp_path / "log", "199.compact", *history)
    log = LogReader(LocalPlace(), str(tmp_path / "log"))
    files, read_before = log.read_new()
    assert 10_000 < len(files) < 200_000
    assert read_before == files[0].modified
    newest = [line(f"new{n}", 200) for n in range(3)]
    write(tmp_path / "log", "200.compact", *history, *newest)
    assert [file.path for file in log.read_new()[0]] == ["/in/new0", "/in/new1", "/in/new2"]


def test_a_look_has_the_log_and_the_directory(tmp_path):
    place, folder = tmp_path / "in", tmp_path / "log"
    place.mkdir()
    (place / "a.json").touch()
    write(folder, "0", line("a.json", 0))
    watch = FileWatch(
        LogReader(LocalPlace(), str(folder)), LocalListing(ListingRule(str(place), oldest_seconds=math.inf))
    )
    seen = watch.look(100.0)
    assert [file.path for file in seen.logged] == ["/in/a.json"]
    assert list(seen.present or ()) == [str(place / "a.json")]
    assert (seen.at, seen.problem) == (100.0, "")


def test_a_log_of_another_form_is_a_problem_of_that_source(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "0").write_text("v1\nnot JSON")
    watch = FileWatch(
        LogReader(LocalPlace(), str(tmp_path / "log")), LocalListing(ListingRule(str(tmp_path / "in")))
    )
    assert "a line cannot be read" in watch.look(1.0).problem


def test_hidden_files_are_none():
    assert [is_hidden(name) for name in ("a", "_SUCCESS", ".a", "a._COPYING_", "_day=1")] == [
        False,
        True,
        True,
        True,
        False,
    ]
