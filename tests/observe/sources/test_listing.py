"""A listing shows what Spark would read, and looks at nothing twice."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from penstock.errors import BadMetrics
from penstock.observe.sources.listing import ListingRule, LocalListing, expand_braces

LATER = 1e12
"""Long after any file was written, so that a directory that has not changed is not read again."""


def make(root, *names, modified=1000.0):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (modified, modified))


def names(root, **options):
    found = LocalListing(ListingRule(str(root), **options)).list_files(LATER)
    return sorted(os.path.relpath(path, root) for path in found)


def test_files_of_a_directory_without_hidden_ones_and_plain_directories(tmp_path):
    make(tmp_path, "a.json", "b.json", "_SUCCESS", ".c.json.crc", "d._COPYING_", "deep/e.json")
    assert names(tmp_path) == ["a.json", "b.json"]
    assert names(tmp_path, recursive=True) == ["a.json", "b.json", "deep/e.json"]


def test_partitions_are_entered(tmp_path):
    make(tmp_path, "day=1/hour=2/a.json", "day=2/b.json", "_spark_metadata/0")
    assert names(tmp_path) == ["day=1/hour=2/a.json", "day=2/b.json"]


def test_a_filter_of_names(tmp_path):
    make(tmp_path, "a.json", "b.csv", "c.txt")
    assert names(tmp_path, name_pattern="*.{json,csv}") == ["a.json", "b.csv"]


def test_wild_cards(tmp_path):
    make(tmp_path, "x1/a", "x2/b", "y1/c", "z/d")
    for pattern, found in [("x*", ["a", "b"]), ("{x1,z}", ["a", "d"]), ("[xy]1", ["a", "c"]), ("q*", [])]:
        listed = LocalListing(ListingRule(str(tmp_path / pattern))).list_files(LATER)
        assert sorted(Path(path).name for path in listed) == found


def test_a_file_itself(tmp_path):
    make(tmp_path, "a.json", "b.json")
    listed = LocalListing(ListingRule(str(tmp_path / "*.json"))).list_files(LATER)
    assert {path: file.modified for path, file in listed.items()} == {
        str(tmp_path / name): 1000.0 for name in ("a.json", "b.json")
    }


def test_a_file_is_told_with_its_bytes(tmp_path):
    (tmp_path / "a.json").write_text("five!")
    (found,) = LocalListing(ListingRule(str(tmp_path))).list_files(LATER).values()
    assert found.size == 5


def test_a_file_that_is_written_in_its_place_is_looked_at_until_it_has_bytes(tmp_path):
    make(tmp_path, "a.json")
    listing = LocalListing(ListingRule(str(tmp_path)))
    assert math.isnan(listing.list_files(1.0)[str(tmp_path / "a.json")].size)
    (tmp_path / "a.json").write_text("five!")
    make(tmp_path, "b.json")
    assert listing.list_files(2.0)[str(tmp_path / "a.json")].size == 5


def test_what_is_new_and_what_has_gone(tmp_path):
    make(tmp_path, "a", "b", "day=1/c")
    listed = LocalListing(ListingRule(str(tmp_path)))
    assert len(listed.list_files(LATER)) == 3
    (tmp_path / "a").unlink()
    make(tmp_path, "d", modified=1007.5)
    make(tmp_path / "day=1", "e")
    found = listed.list_files(LATER)
    assert sorted(os.path.relpath(path, tmp_path) for path in found) == ["b", "d", "day=1/c", "day=1/e"]
    assert found[str(tmp_path / "d")].modified == 1007.5


def test_a_directory_just_written_to_is_read_again(tmp_path):
    """Two changes within a tick of the file system's clock leave the same time."""
    make(tmp_path, "a")
    os.utime(tmp_path, (500.0, 500.0))
    listed = LocalListing(ListingRule(str(tmp_path)))
    assert len(listed.list_files(500.5)) == 1
    make(tmp_path, "b")
    os.utime(tmp_path, (500.0, 500.0))
    assert len(listed.list_files(510.0)) == 2


def test_files_too_old_for_spark_do_not_wait(tmp_path):
    make(tmp_path, "old", modified=1000.0)
    make(tmp_path, "new", modified=1000.0 + 8 * 86400)
    assert names(tmp_path) == ["new"]
    assert names(tmp_path, oldest_seconds=float("inf")) == ["new", "old"]


def test_a_place_that_is_gone_is_told(tmp_path):
    with pytest.raises(BadMetrics, match="is gone: what waits to be read there is not known"):
        LocalListing(ListingRule(str(tmp_path / "gone"))).list_files(LATER)


def test_too_many_files_are_told(tmp_path):
    make(tmp_path, *(str(number) for number in range(9)))
    with pytest.raises(BadMetrics, match=r"more than 5 files.*cleanSource"):
        LocalListing(ListingRule(str(tmp_path), most_files=5)).list_files(LATER)


def test_alternatives():
    assert list(expand_braces("a/{b,c}/{d,e}")) == ["a/b/d", "a/b/e", "a/c/d", "a/c/e"]
    assert list(expand_braces("plain")) == ["plain"]
