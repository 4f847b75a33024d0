"""`penstock fleet key`, and what `penstock fleet run` refuses before Spark is up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.commands.ending import interruptible
from penstock.commands.fleet import answering_health
from penstock.fleet.keys import parse_key, read_key
from penstock.fleet.places import FleetDirectory
from penstock.fleet.standby import make_keeper
from penstock.journal.store import open_journal
from penstock.settings.model import load_settings
from tests.commands.command_line import COMMAND, ROOT, Captured, complaint, last_json
from tests.waiting import wait_for


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


def test_a_controller_is_well_while_its_loop_comes_round(
    capsys: Captured, tmp_path: Path, config: list[str]
) -> None:
    now = [0.0]
    settings = load_settings(Path(config[1]), {})
    assert perform(["health", *config]) == 1
    with answering_health(settings, tmp_path / "fleet", lambda: now[0]) as beat:
        now[0] = 80.0
        beat()
        now[0] = 160.0
        capsys.readouterr()
        assert perform(["health", str(tmp_path / "fleet"), *config, "--json"]) == 0
        (told,) = last_json(capsys)["applications"]
        assert (told["silent_seconds"], told["hangs_after_seconds"], told["hangs"]) == (80.0, 90.0, False)
        now[0] = 171.0
        assert perform(["health", *config]) == 1
        assert "hangs" in capsys.readouterr().out
        # it is no application
        assert perform(["status", *config]) == 1
    assert perform(["health", *config]) == 1


def test_a_controller_runs_on_where_no_socket_can_be_opened(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    settings = load_settings(None, {"PENSTOCK_RUNTIME_DIRECTORY": str(tmp_path / "run")})
    with answering_health(settings, tmp_path) as beat:
        beat()
    assert "its mode must be 0700: `penstock health` does not see this controller" in capsys.readouterr().err


def test_a_request_to_end_is_heeded_by_the_first_process_of_a_container() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_standby_answers_and_ends_at_once_when_it_is_told_to(tmp_path: Path, config: list[str]) -> None:
    """The real command, which starts no Spark while another controller leads."""
    fleet, key = tmp_path / "fleet", tmp_path / "fleet.key"
    assert perform(["fleet", "key", str(key)]) == 0
    fleet.mkdir(mode=0o755)
    with closing(open_journal(FleetDirectory(fleet).journal)) as journal:
        leader = make_keeper(journal, fleet)
        leader.start()
        wait_for("the lead", lambda: leader.lease is not None)
        environment = {**os.environ, "PENSTOCK_CONFIG": config[1]}
        command = [*COMMAND, "fleet", "run", str(fleet), "--key-file", str(key), "--json"]
        standby = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            wait_for("its answer", lambda: perform(["health", str(fleet), *config]) == 0)
            standby.send_signal(signal.SIGTERM)
            told, _ = standby.communicate(timeout=60)
        finally:
            standby.kill()
            leader.stop()
    assert standby.returncode == 0
    assert json.loads(told.splitlines()[-1])["applications"] == 0
    assert not list((tmp_path / "run" / "fleets").glob("*.sock"))
