"""`penstock fleet key`, and what `penstock fleet run` refuses before Spark is up."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.fleet.keys import parse_key, read_key
from tests.commands.command_line import Captured, complaint, last_json


def test_a_key_is_made_once_and_others_are_derived_from_it(capsys: Captured, tmp_path: Path) -> None:
    file, words = tmp_path / "fleet.key", tmp_path / "words.key"
    assert perform(["fleet", "key", str(file), "--json"]) == 0
    assert last_json(capsys) == {"file": str(file)}
    key = read_key(file)
    assert perform(["fleet", "key", str(file)]) == 2
    assert "never written over" in complaint(capsys)
    assert read_key(file) == key
    assert perform(["fleet", "key", str(file), "--for", "words"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert parse_key(line) == key.for_application("words")
    assert perform(["fleet", "key", str(file), "--for", "words", "--json"]) == 0
    assert last_json(capsys) == {"application": "words", "key": line}
    assert perform(["fleet", "key", str(file), "--for", "words", "--to", str(words), "--json"]) == 0
    said = capsys.readouterr()
    assert key.for_application("words").secret.hex() not in said.out + said.err
    assert read_key(words) == key.for_application("words") and words.stat().st_mode & 0o777 == 0o600


def test_keys_that_cannot_be_derived(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "fleet.key"
    assert perform(["fleet", "key", str(file), "--to", str(tmp_path / "other")]) == 2
    assert "--for" in complaint(capsys)
    assert perform(["fleet", "key", str(file), "--for", "words"]) == 2
    assert str(file) in complaint(capsys)
    assert perform(["fleet", "key", str(tmp_path / "no" / "key")]) == 2
    assert str(tmp_path / "no" / "key") in complaint(capsys)


@pytest.mark.parametrize("place", ["--windows", "--decisions"])
def test_a_fleet_without_a_key_does_not_meet_in_kafka(capsys: Captured, tmp_path: Path, place: str) -> None:
    (tmp_path / "fleet").mkdir(mode=0o755)
    assert perform(["fleet", "run", str(tmp_path / "fleet"), place, "kafka://127.0.0.1:1/x", "--once"]) == 2
    assert "fleet_key_file" in complaint(capsys)


def test_a_fleet_without_a_key_does_not_meet_where_others_write(capsys: Captured, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert perform(["fleet", "run", str(tmp_path), "--once", "--json"]) == 2
    assert "others may write it" in capsys.readouterr().err


def test_a_controller_needs_the_key_of_the_fleet(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, words = tmp_path / "fleet.key", tmp_path / "words.key"
    assert perform(["fleet", "key", str(file)]) == 0
    assert perform(["fleet", "key", str(file), "--for", "words", "--to", str(words)]) == 0
    capsys.readouterr()
    assert perform(["fleet", "run", str(tmp_path), "--once", "--key-file", str(words)]) == 2
    assert "the fleet's key is needed" in complaint(capsys)
    monkeypatch.setenv("PENSTOCK_FLEET_KEY_FILE", str(words))
    assert perform(["fleet", "run", str(tmp_path), "--once"]) == 2
    assert "the fleet's key is needed" in complaint(capsys)


def test_a_fleet_whose_own_journal_cannot_be_used_does_not_wait(capsys: Captured, tmp_path: Path) -> None:
    windows = tmp_path / "windows"
    windows.mkdir(mode=0o755)
    (tmp_path / "fleet").mkdir(mode=0o755)
    (tmp_path / "fleet" / "journal.db").mkdir()
    assert perform(["fleet", "run", str(tmp_path / "fleet"), "--windows", str(windows)]) == 1
    assert "is a directory; a file is expected" in complaint(capsys)
