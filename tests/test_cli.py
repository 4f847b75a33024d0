"""The command contract: output, exit codes, and one clear line for whatever is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import __version__
from penstock.cli import perform
from penstock.control import ControlServer
from penstock.dataflow.window import EXECUTORS
from penstock.decide.registry import POLICIES
from penstock.decide.verdict import Accepted
from penstock.journal.store import open_journal
from tests.fakes import a_scale, a_window, an_outcome
from tests.view import made_up

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "penstock.cli"]

COMMANDS = [
    *("run", "watch", "status", "pause", "resume"),
    *("decide", "simulate", "policies", "actions", "explain", "diagnose", "bench", "demo", "config"),
]

Captured = pytest.CaptureFixture[str]

TOPOLOGY = """# operator_id1,operator_name1,instances1,operator_id2,operator_name2,instances2
0,source,1,1,flat map,2
1,flat map,2,2,count,1
"""
RATES = """# operator_id,instance_id,instances,epoch_timestamp,true_proc,true_out,observed_proc,observed_out
0,0,1,10,0,1000,0,1000
1,0,2,10,200,400,200,400
1,1,2,10,200,400,200,400
2,0,1,10,500,0,500,0
"""


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    """The option that keeps a command inside the test's own directory."""
    file = tmp_path / "settings.yaml"
    file.write_text(f"journal: {tmp_path / 'journal.db'}\nruntime_directory: {tmp_path / 'run'}\n")
    return ["--config", str(file)]


@pytest.fixture
def recorded(tmp_path: Path) -> list[str]:
    (tmp_path / "topology.csv").write_text(TOPOLOGY)
    (tmp_path / "rates.csv").write_text(RATES)
    return ["--topology", str(tmp_path / "topology.csv"), "--rates", str(tmp_path / "rates.csv")]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with closing(open_journal(path)) as made:
        made.observed(10.0, a_window())
        scale = a_scale(5, "counts needs 10 slots")
        decision = made.decided(10.0, "app-1", scale, Accepted(scale), "ds2")
        action = made.intend(10.0, "app-1", decision, scale, {EXECUTORS: 2})
        made.ended(16.0, action, an_outcome(5, detail="5 registered"))
        made.intend(20.0, "app-2", decision, a_scale(3), {EXECUTORS: 5})
    return path


@contextmanager
def application(directory: Path, **changes: Any) -> Iterator[list[str]]:
    """A stand-in for a running application; yields the commands it was sent."""
    commands: list[str] = []
    status = made_up.status(**changes)

    def handler(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        commands.append(command)
        if command == "hello":
            return {"application": status["application"], "name": status["name"]}
        return {"status": status} if command == "status" else {"paused": command == "pause"}

    with closing(ControlServer(directory / "run", status["application"], handler)):
        yield commands


def last_json(captured: Captured) -> Any:
    """The last line of standard output; nothing else there may be JSON."""
    *others, last = captured.readouterr().out.splitlines()
    assert not [line for line in others if line.startswith(("{", "["))]
    return json.loads(last)


def complaint(captured: Captured) -> str:
    """The one line on standard error."""
    said = captured.readouterr().err
    assert said.count("\n") == 1, said
    assert said.startswith("penstock: error: ")
    return said.removeprefix("penstock: error: ").strip()


def test_the_version(capsys: Captured) -> None:
    assert perform(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_takes_json(capsys: Captured, command: str) -> None:
    assert perform([command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_without_a_command_the_help_is_shown(capsys: Captured) -> None:
    assert perform([]) == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["watch", "--frob"], "--frob"),
        (["decide"], "--topology"),
        (["explain", "seven"], "action"),
        (["run"], "JOB.PY"),
        (["run", "nowhere.py"], "nowhere.py: no such file"),
        (["run", "--conf", "novalue", __file__], "--conf: 'novalue' is not key=value"),
        (["run", "--conf", "a=b", __file__], "--conf: 'a' is not a Spark key"),
        (["run", "--policy", "ds3", __file__], "unknown policy 'ds3'; did you mean 'ds2'?"),
        (["run", "--config", "none.yaml", __file__], "none.yaml"),
        (["run", "--conf", "spark.penstock.utilization=1", __file__], "utilisation"),
        (["bench"], "name one of "),
        (["bench", "descision"], "did you mean 'decision'?"),
        (["config", "--config", "none.yaml"], "none.yaml: no such file"),
        (["config", "--conf", "spark.penstock.policy=ds3"], "unknown policy 'ds3'; did you mean 'ds2'?"),
        (["actions", "--journal", "none.db"], "--journal: none.db: no such file"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(capsys: Captured, arguments: list[str], said: str) -> None:
    assert perform(arguments) == 2
    assert said in complaint(capsys)


def test_policies(capsys: Captured) -> None:
    assert perform(["policies", "--json"]) == 0
    listed = last_json(capsys)["policies"]
    assert {one["name"] for one in listed} == set(POLICIES)
    for one in listed:
        assert set(one) == {"name", "summary", "needs", "promises", "choose_when", "baseline"}
    baselines = [one["baseline"] for one in listed]
    assert baselines == sorted(baselines)
    assert perform(["policies"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in POLICIES)


# --- decide -----------------------------------------------------------------------------------------------


def test_decide(capsys: Captured, recorded: list[str]) -> None:
    # flat map: 1000 / 200 = 5; count: 1000 * 2 / 500 = 4
    assert perform(["decide", "--policy", "ds2", *recorded, "--json"]) == 0
    epoch = last_json(capsys)["epochs"][0]
    assert epoch == {"exact": {"flat map": 5.0, "count": 4.0}, "parallelism": {"flat map": 5, "count": 4}}


def test_decide_with_headroom_and_given_source_rates(
    capsys: Captured, recorded: list[str], tmp_path: Path
) -> None:
    (tmp_path / "sources.csv").write_text("source,500\n")
    sources = ["--source-rates", str(tmp_path / "sources.csv")]
    assert perform(["decide", *recorded, *sources, "--scaling-factor", "0.1", "--json"]) == 0
    # half the rate: 2.5 and 2, a tenth more: 2.75 and 2.2
    assert last_json(capsys)["epochs"][0]["parallelism"] == {"flat map": 3, "count": 3}


def test_decide_for_people(capsys: Captured, recorded: list[str]) -> None:
    assert perform(["decide", *recorded]) == 0
    shown = capsys.readouterr().out
    assert "flat map" in shown
    assert "5.0000" in shown


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        ("rates.csv", RATES.replace("200,400,200,400", "many,400,200,400", 1), "rates.csv"),
        ("rates.csv", "1,0,2\n", "rates.csv"),
        ("topology.csv", "0,source,1,1\n", "topology.csv"),
    ],
)
def test_a_bad_recording_names_file_and_line(
    capsys: Captured, recorded: list[str], tmp_path: Path, file: str, text: str, place: str
) -> None:
    (tmp_path / file).write_text(text)
    assert perform(["decide", *recorded, "--json"]) == 2
    caught = capsys.readouterr()
    assert place in caught.err
    assert "line" in caught.err
    assert "error" in json.loads(caught.out)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00bad"])
def test_a_recording_that_cannot_be_read_is_named(
    capsys: Captured, recorded: list[str], tmp_path: Path, content: bytes | None
) -> None:
    (tmp_path / "rates.csv").unlink()
    if content is not None:
        (tmp_path / "rates.csv").write_bytes(content)
    assert perform(["decide", *recorded]) == 2
    assert "rates.csv" in complaint(capsys)


@pytest.mark.parametrize("option", [["--scaling-factor", "-1"], ["--target-rate-ratio", "0.5"]])
def test_decide_settings_out_of_range(capsys: Captured, recorded: list[str], option: list[str]) -> None:
    assert perform(["decide", *recorded, *option]) == 2
    assert option[0].removeprefix("--") in complaint(capsys)


# --- actions, explain -------------------------------------------------------------------------------------


def test_actions(capsys: Captured, config: list[str], journal: Path) -> None:
    assert perform(["actions", *config, "--json"]) == 0
    first, second = last_json(capsys)["actions"]
    assert (first["status"], first["planned"], first["before"]) == (
        "done",
        {"executors": 5},
        {"executors": 2},
    )
    assert (second["application"], second["status"]) == ("app-2", None)


def test_actions_of_one_application_for_people(capsys: Captured, journal: Path, tmp_path: Path) -> None:
    assert perform(["actions", "--app", "app-1", "--journal", str(journal)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "app-1" in shown
    assert "app-2" not in shown


def test_actions_where_nothing_was_recorded(capsys: Captured, config: list[str]) -> None:
    assert perform(["actions", *config, "--json"]) == 0
    assert last_json(capsys) == {"actions": []}
    assert perform(["actions", *config]) == 0
    assert "no actions" in capsys.readouterr().out


def test_explain(capsys: Captured, config: list[str], journal: Path) -> None:
    assert perform(["explain", "1", *config]) == 0
    assert "counts needs 10 slots" in capsys.readouterr().out
    assert perform(["explain", "1", *config, "--json"]) == 0
    told = last_json(capsys)
    assert told["action"]["action_id"] == 1
    assert "counts needs 10 slots" in told["explanation"]


@pytest.mark.parametrize("recorded_before", [True, False])
def test_explaining_an_action_that_is_not_there(
    capsys: Captured, config: list[str], journal: Path, recorded_before: bool
) -> None:
    if not recorded_before:
        journal.unlink()
    assert perform(["explain", "99", *config]) == 2
    assert "no action 99" in complaint(capsys)


def test_a_journal_that_is_no_journal_is_a_failure_not_a_crash(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "odd.db").write_text("this is not a database, and long enough to be one" * 50)
    assert perform(["actions", "--journal", str(tmp_path / "odd.db")]) == 1
    assert "odd.db" in complaint(capsys)


# --- watch, status, pause, resume -------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["watch", "status", "pause", "resume"])
def test_none_running(capsys: Captured, config: list[str], command: str) -> None:
    assert perform([command, *config]) == 1
    assert "no application" in complaint(capsys)


def test_an_unknown_application_is_bad_input(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with application(tmp_path):
        assert perform(["watch", "other", *config]) == 2
    assert "'other'; running: app-20251116000000-0001" in complaint(capsys)


def test_several_running_are_listed(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with application(tmp_path), application(tmp_path, application="app-9"):
        assert perform(["status", *config]) == 2
        assert "app-9" in complaint(capsys)
        assert perform(["status", "app-9", *config]) == 0


@pytest.mark.parametrize("arguments", [["watch", "--once"], ["status"]])
def test_the_status_once(capsys: Captured, config: list[str], tmp_path: Path, arguments: list[str]) -> None:
    with application(tmp_path):
        assert perform([*arguments, *config]) == 0
        assert "slots held 4" in capsys.readouterr().out
        assert perform([*arguments, *config, "--json"]) == 0
    assert last_json(capsys)["slots"] == 4


def test_a_page_on_the_side(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with application(tmp_path):
        assert perform(["status", *config, "--html", str(tmp_path / "page.html"), "--json"]) == 0
    assert last_json(capsys)["slots"] == 4
    assert "counts needs 10 slots" in (tmp_path / "page.html").read_text()


def test_pause_and_resume(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with application(tmp_path) as commands:
        assert perform(["pause", *config, "--json"]) == 0
        assert last_json(capsys)["paused"] is True
        assert perform(["resume", *config]) == 0
        assert "is running" in capsys.readouterr().out
    assert [command for command in commands if command != "hello"] == ["pause", "resume"]


def test_watch_prints_a_line_per_update_until_the_application_ends(
    capsys: Captured, config: list[str], tmp_path: Path
) -> None:
    ended = threading.Event()

    def run() -> None:
        with application(tmp_path) as commands:
            ready.set()
            while commands.count("status") < 2:
                time.sleep(0.01)
        ended.set()

    ready = threading.Event()
    threading.Thread(target=run, daemon=True).start()
    assert ready.wait(5)
    assert perform(["watch", *config]) == 0
    caught = capsys.readouterr()
    assert ended.is_set()
    assert caught.out.count("counts 518/s offered") == 2
    assert "has ended" in caught.err


def test_watch_on_a_terminal_is_left_with_control_c(config: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    surroundings = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"}
    with application(tmp_path):
        watching = subprocess.Popen([*COMMAND, "watch", *config], stdout=theirs, cwd=ROOT, env=surroundings)
        shown = ""
        while "word <count>" not in shown:
            readable, _, _ = select.select([ours], [], [], 30)
            assert readable, f"nothing more was shown than {shown!r}"
            shown += os.read(ours, 4000).decode(errors="replace")
        # the rest must be read too, or the view would wait for room in the terminal
        threading.Thread(target=drain, args=(ours,), daemon=True).start()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0
    os.close(theirs)


def drain(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 4000):
            pass


# --- config, bench ----------------------------------------------------------------------------------------


def test_config_says_where_each_setting_came_from(config: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, "config", *config, "--conf", "spark.penstock.max.executors=9", "--json"],
        env={**os.environ, "PENSTOCK_UTILISATION": "0.7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    settings = json.loads(done.stdout)["settings"]
    assert settings["utilisation"] == {"value": 0.7, "from": "environment variable PENSTOCK_UTILISATION"}
    assert settings["max_executors"] == {"value": 9, "from": "Spark key spark.penstock.max.executors"}
    assert settings["journal"]["from"].endswith("settings.yaml line 1, journal")
    assert settings["policy_interval"] == {"value": 10.0, "from": "default"}


def test_config_for_people(capsys: Captured, config: list[str]) -> None:
    assert perform(["config", *config]) == 0
    assert "policy_interval" in capsys.readouterr().out


def test_benches_are_listed(capsys: Captured) -> None:
    assert perform(["bench", "--list", "--json"]) == 0
    assert {"decision", "overhead", "wordcount"} <= {one["name"] for one in last_json(capsys)["benches"]}


def test_a_bench_prints_its_table_and_ends_with_json(capsys: Captured) -> None:
    assert perform(["bench", "decision", "--quick", "--json"]) == 0
    report = last_json(capsys)
    assert report["bench"] == "decision"
    assert report["targets"]
