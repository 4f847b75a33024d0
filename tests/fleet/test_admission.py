"""Whom a fleet believes: by key files, by the owners of files, and by the clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson
import pytest

from penstock.decide.policy import Hold
from penstock.decide.sage.settings import SageSettings
from penstock.errors import BadInput
from penstock.fleet.action_log import ActionLog
from penstock.fleet.admission import Admission
from penstock.fleet.agent import FleetPolicy
from penstock.fleet.files import Ownership, find_trusted_users, local_path
from penstock.fleet.kafka import KafkaTransport
from penstock.fleet.keys import MISFIT, FleetKey, make_fleet_key, read_fleet_key, read_key, write_key
from penstock.fleet.places import FleetDirectory, FleetTopic
from penstock.fleet.records import Read, move_back
from penstock.fleet.reporting import DirectoryTransport, connect_to_fleet
from penstock.fleet.round import play_round, tabulate_decisions
from penstock.fleet.state import FleetState, empty_state
from penstock.journal.store import Journal, open_journal
from tests.fakes import FixedPolicy, a_scale, a_window
from tests.fleet.agents import GIB, a_record, a_table

FLEET = FleetKey(bytes(range(32)))
NOW = 1_000_000.0
NOBODY = frozenset({12_345_678})


@pytest.fixture(autouse=True)
def _files_of_our_own():
    """As most systems have it: what is made here can be written by this user alone."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def admitted(admission: Admission, lines: Sequence[bytes], now: float = NOW) -> Read:
    return admission.read_messages(["topic/0/1"] * len(lines), lines, now)


def ends(state: FleetState, name: str) -> list[float]:
    at = state.at[state.names.to_pylist().index(name)]
    return at[np.isfinite(at)].tolist()


def write_decisions(root: Path, key: FleetKey | None = None) -> Path:
    """A decision to shrink `words` to one executor."""
    records = [
        a_record("words", end=10.0 * n, needed_parallelism=1, heap_used_bytes=5.8 * GIB) for n in range(1, 5)
    ]
    found = tabulate_decisions(play_round(empty_state(), a_table(*records), SageSettings()), SageSettings())
    FleetDirectory(root).write_decisions(1, found if key is None else key.sign(found))
    return root / "decisions" / "batch-000000001.jsonl"


def test_windows_dated_ahead_in_the_name_of_another_neither_shrink_nor_silence_it():
    """The attack: windows dated 25 minutes ahead shrank a job from 8 to 1, and its own came too late."""
    admission, state = Admission(FLEET), empty_state()
    words, theirs = FLEET.for_application("words"), FLEET.for_application("theirs")
    for number in range(1, 9):
        now = NOW + 10.0 * number
        real = words.sign_line(a_record("words", end=now, held_parallelism=8, needed_parallelism=8))
        ahead = a_record("words", end=now + 1500.0, held_parallelism=8, needed_parallelism=1)
        read = admitted(admission, [theirs.sign_line(ahead), words.sign_line(ahead), real], now)
        assert read.dead["reason"].to_pylist() == [MISFIT, "the window ends in the future"]
        result = play_round(state, move_back(read.windows, now), SageSettings())
        assert tabulate_decisions(result, SageSettings()).num_rows == 0
        state = result.state
    assert ends(state, "words") == [NOW + 10.0 * number for number in range(1, 9)]


def test_a_window_that_is_a_few_seconds_ahead_does_not_silence_the_real_ones():
    state, admission = empty_state(), Admission(FLEET)
    key = FLEET.for_application("words")
    for number, ahead in ((1, 25.0), (2, 0.0), (3, 0.0)):
        now = NOW + 10.0 * number
        read = admitted(admission, [key.sign_line(a_record("words", end=now + ahead))], now)
        state = play_round(state, move_back(read.windows, now), SageSettings()).state
    assert ends(state, "words") == [NOW + 10.0, NOW + 20.0, NOW + 30.0]


def test_the_windows_of_a_clock_that_is_ahead_keep_their_distances():
    records = [a_record("words", end=NOW + 10.0 * number) for number in range(3)]
    table = move_back(a_table(*records, a_record("others", end=NOW - 3.0)), NOW)
    assert table["end"].to_pylist() == [NOW - 20.0, NOW - 10.0, NOW, NOW - 3.0]
    assert table["start"].to_pylist() == [NOW - 30.0, NOW - 20.0, NOW - 10.0, NOW - 13.0]
    assert move_back(table, NOW) is table


def test_a_window_that_comes_again_does_not_go_back():
    key, state = FLEET.for_application("words"), empty_state()
    lines = [key.sign_line(a_record("words", end=NOW + 10.0 * number)) for number in range(3)]
    for line in (*lines, lines[0], lines[1]):
        state = play_round(
            state, admitted(Admission(FLEET), [line], NOW + 60.0).windows, SageSettings()
        ).state
    assert ends(state, "words") == [NOW, NOW + 10.0, NOW + 20.0]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o700, 0o604])
def test_a_key_that_others_may_read_is_refused_with_the_way_out(tmp_path: Path, mode: int):
    file = tmp_path / "key"
    write_key(file, FLEET)
    assert file.stat().st_mode & 0o777 == 0o600 and read_key(file) == FLEET
    file.chmod(mode)
    with pytest.raises(BadInput, match=rf"{file}: the key has mode 0{mode:o}.*chmod 600"):
        read_key(file)
    file.chmod(0o400)
    assert read_key(file) == FLEET


def test_key_files_that_are_none(tmp_path: Path):
    with pytest.raises(BadInput, match="No such file"):
        read_key(tmp_path / "nothing")
    with pytest.raises(BadInput, match="not a file that could hold the key"):
        read_key(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(BadInput, match="not a file that could hold the key"):
        read_key(tmp_path / "pipe")
    (tmp_path / "text").write_text("secret words")
    (tmp_path / "text").chmod(0o600)
    with pytest.raises(BadInput, match=r"text: not a key of a fleet: `penstock fleet key") as refused:
        read_key(tmp_path / "text")
    assert "secret words" not in str(refused.value)
    write_key(tmp_path / "words", FLEET.for_application("words"))
    with pytest.raises(BadInput, match="the application 'words' alone; the fleet's key is needed"):
        read_fleet_key(tmp_path / "words")
    with pytest.raises(BadInput, match="never written over"):
        write_key(tmp_path / "words", make_fleet_key())
    assert make_fleet_key() != make_fleet_key()


def test_files_that_others_may_write_are_not_believed(tmp_path: Path):
    file = tmp_path / "fleet" / "windows" / "1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert Ownership(find_trusted_users()).distrust_file(file) == ""
    for place in (file, file.parent, file.parent.parent):
        mode = place.stat().st_mode
        for others in (0o020, 0o002):
            place.chmod(mode | others)
            fault = Ownership(find_trusted_users()).distrust_file(file)
            assert fault.startswith(f"{place}: others may write it") and "fleet_key_file" in fault
        place.chmod(mode)
    assert "who is not believed" in Ownership(NOBODY).distrust_file(file)
    (tmp_path / "link").symlink_to(tmp_path / "fleet")
    file.parent.parent.chmod(0o777)
    assert Ownership(find_trusted_users()).distrust_directory(tmp_path / "link" / "windows")
    file.parent.parent.chmod(0o1777)
    assert Ownership(find_trusted_users()).distrust_file(file) == "", "in a sticky one nobody replaces it"
    file.unlink()
    assert "cannot be looked at" in Ownership(find_trusted_users()).distrust_file(file)
    assert (
        local_path("file:///srv/a b/1.jsonl")
        == Path("/srv/a b/1.jsonl")
        == local_path("file:/srv/a b/1.jsonl")
    )
    assert local_path("hdfs://name/1.jsonl") is None


def test_windows_in_files_of_others_go_to_the_dead_letters(tmp_path: Path):
    """The attack: whoever could put a file there spoke for any application."""
    lines = [orjson.dumps(a_record(name)) for name in ("words", "forged")]
    paths = [tmp_path / f"{number}.jsonl" for number in range(2)]
    for path, line in zip(paths, lines, strict=True):
        path.write_bytes(line)
    paths[1].chmod(0o666)
    reads = list(Admission().read_files([f"file:{path}" for path in paths], NOW))
    assert [name for read in reads for name in read.windows["application"].to_pylist()] == ["words"]
    (bad,) = [row for read in reads for row in read.dead.to_pylist()]
    assert "others may write it" in bad["reason"] and bad["origin"] == f"file:{paths[1]}"
    (elsewhere, nothing) = Admission().read_files(["s3a://bucket/1.jsonl"], NOW)
    assert (
        "no file system of this machine" in elsewhere.dead["reason"][0].as_py()
        and nothing.windows.num_rows == 0
    )


def test_a_controller_without_a_key_judges_no_topic_and_no_open_directory(tmp_path: Path):
    with pytest.raises(BadInput, match=r"needs a key, fleet_key_file or --key-file"):
        Admission().check(FleetTopic("broker:9092", "windows"))
    Admission(FLEET).check(FleetTopic("broker:9092", "windows"))
    Admission().check(tmp_path)
    Admission().check(tmp_path / "missing")
    tmp_path.chmod(0o777)
    with pytest.raises(BadInput, match="others may write it"):
        Admission().check(tmp_path)
    Admission(FLEET).check(tmp_path)


def test_decisions_in_a_directory_of_others_are_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The attack: a decision that anybody put there was carried out."""
    path = write_decisions(tmp_path)
    transport = DirectoryTransport(tmp_path)
    path.parent.chmod(0o777)
    assert transport.decisions("words") == transport.decisions("words") == []
    assert "others may write it" in transport.refusal and "fleet_key_file" in transport.refusal
    (line,) = [record.getMessage() for record in caplog.records]
    assert "not believed" in line and str(path.parent) in line
    path.parent.chmod(0o755)
    assert len(transport.decisions("words")) == 1 and transport.refusal == "", (
        "they are read when it is mended"
    )
    path.chmod(0o666)
    assert DirectoryTransport(tmp_path).decisions("words") == []


def test_decisions_count_by_their_signature_where_there_is_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    key = FLEET.for_application("words")
    path = write_decisions(tmp_path, FLEET)
    path.parent.chmod(0o777)
    (decision,) = DirectoryTransport(tmp_path, key).decisions("words")
    assert decision.decision_id == 40_000
    assert not caplog.records
    transport = DirectoryTransport(tmp_path, FleetKey(bytes(32)).for_application("words"))
    write_decisions(tmp_path)
    assert transport.decisions("words") == []
    FleetDirectory(tmp_path).write_decisions(2, a_table(a_record("words")))
    assert transport.decisions("words") == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert "signature does not fit" in line


def test_an_agent_signs_its_windows_and_carries_out_what_is_signed(tmp_path: Path):
    file, root = tmp_path / "words.key", tmp_path / "fleet"
    write_key(file, FLEET.for_application("words"))
    journal, transport = (
        open_journal(tmp_path / "journal.db"),
        connect_to_fleet(str(root), "words", str(file)),
    )
    agent = FleetPolicy("words", transport, journal, FixedPolicy(a_scale(4)), {})
    assert isinstance(agent.propose(a_window(10.0)), Hold)
    (line,) = [path.read_bytes() for path in (root / "windows").iterdir()]
    assert admitted(Admission(FLEET), [line]).windows["application"].to_pylist() == ["words"]
    write_decisions(root)
    assert isinstance(agent.propose(a_window(20.0)), Hold)
    write_decisions(root, FLEET).rename(root / "decisions" / "batch-000000002.jsonl")
    assert not isinstance(agent.propose(a_window(30.0)), Hold)
    with pytest.raises(BadInput, match=r"fleet_key_file: the key of 'words', and this application is named"):
        connect_to_fleet(str(root), "other", str(file))
    file.chmod(0o644)
    with pytest.raises(BadInput, match=r"fleet_key_file: .*words\.key: the key has mode 0644"):
        connect_to_fleet(str(root), "words", str(file))


def test_only_signed_decisions_get_into_the_journal(
    tmp_path: Path, journal: Journal, caplog: pytest.LogCaptureFixture
):
    write_decisions(tmp_path, FleetKey(bytes(32)))
    assert ActionLog(FleetDirectory(tmp_path), journal, FLEET).catch_up()
    assert list(journal.decisions("words")) == []
    assert "the signature does not fit" in caplog.text
    write_decisions(tmp_path, FLEET).rename(tmp_path / "decisions" / "batch-000000002.jsonl")
    assert ActionLog(FleetDirectory(tmp_path), journal, FLEET).catch_up()
    assert len(list(journal.decisions("words"))) == 1


class WithoutBroker:
    """Decisions as from Kafka, windows into a directory."""

    def __init__(self, root: Path) -> None:
        self._kafka, self._directory = (
            KafkaTransport(FleetTopic("127.0.0.1:1", "fleet")),
            DirectoryTransport(root),
        )
        self.refusal = self._kafka.refusal
        self.decisions, self.publish = self._kafka.decisions, self._directory.publish


def test_an_agent_without_a_key_carries_out_nothing_that_comes_over_kafka(tmp_path: Path, journal: Journal):
    """The attack: whoever reached the broker resized any application."""
    agent = FleetPolicy("words", WithoutBroker(tmp_path), journal, FixedPolicy(a_scale(4)), {})
    answer = agent.propose(a_window(10.0))
    assert isinstance(answer, Hold)
    assert "fleet_key_file" in answer.reason and "penstock fleet key" in answer.reason
    assert len(list((tmp_path / "windows").iterdir())) == 1, "it is reported all the same"
