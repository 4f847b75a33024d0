"""`penstock run`: the script runs as under Python, and the watcher attaches without ever breaking it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, Unsupported
from penstock.runtime.launch import (
    SessionWatcher,
    add_properties,
    find_active_session,
    write_submit_arguments,
)

ROOT = Path(__file__).parents[2]


class FakeHandle:
    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.detached = False

    def status(self) -> dict[str, Any]:
        return {"application": self.session.name}

    def detach(self) -> None:
        self.detached = True


class FakeSession:
    def __init__(self, name: str, context: object | None = None) -> None:
        self.name = name
        self._sc = context or object()


class Stage:
    """A watcher over a script whose sessions the test puts on and takes off."""

    def __init__(self, error: Exception | None = None) -> None:
        self.session: FakeSession | None = None
        self.handles: list[FakeHandle] = []
        self.said: list[str] = []
        self.error = error
        self.looked = threading.Event()
        self.watcher = SessionWatcher(self._find, self._attach, self.said.append, every=0.001)

    def _find(self) -> FakeSession | None:
        self.looked.set()
        return self.session

    def _attach(self, session: FakeSession) -> FakeHandle:
        if self.error is not None:
            raise self.error
        self.handles.append(FakeHandle(session))
        return self.handles[-1]


def test_a_session_is_attached_once() -> None:
    stage = Stage()
    stage.watcher.look()
    assert not stage.watcher.found_spark
    stage.session = FakeSession("app-1")
    stage.watcher.look()
    stage.watcher.look()
    assert [handle.session.name for handle in stage.handles] == ["app-1"]
    assert stage.watcher.found_spark


def test_another_session_of_the_same_application_is_not_attached_again() -> None:
    stage = Stage()
    context = object()
    for name in ("first", "second"):
        stage.session = FakeSession(name, context)
        stage.watcher.look()
    assert len(stage.handles) == 1


def test_spark_stopped_and_started_anew_is_attached_again() -> None:
    stage = Stage()
    for session in (FakeSession("app-1"), None, FakeSession("app-2")):
        stage.session = session
        stage.watcher.look()
    assert [status["application"] for status in stage.watcher.statuses()] == ["app-1", "app-2"]


@pytest.mark.parametrize("error", [Unsupported("Spark 3.5 is too old"), RuntimeError("a fault of ours")])
def test_what_goes_wrong_is_said_once(error: Exception) -> None:
    stage = Stage(error)
    stage.session = FakeSession("app-1")
    stage.watcher.look()
    stage.watcher.look()
    assert len(stage.said) == 1
    assert str(error) in stage.said[0]
    assert stage.watcher.found_spark


def test_the_thread_looks_until_stopped_and_lets_go_of_all() -> None:
    stage = Stage()
    stage.session = FakeSession("app-1")
    stage.watcher.start()
    assert stage.looked.wait(60)
    stage.watcher.stop()
    assert all(handle.detached for handle in stage.handles)


def test_looking_imports_nothing() -> None:
    assert "pyspark" not in sys.modules or find_active_session() is None
    check = "import sys; from penstock.runtime.launch import find_active_session"
    check += "; print(find_active_session(), 'pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "None False\n"


def test_spark_settings_go_in_front_of_what_is_there() -> None:
    conf = {"spark.app.name": "two words", "spark.x": "y"}
    assert shlex.split(write_submit_arguments(conf, {})) == [
        "--conf",
        "spark.app.name=two words",
        "--conf",
        "spark.x=y",
        "pyspark-shell",
    ]
    kept = write_submit_arguments({"spark.x": "y"}, {"PYSPARK_SUBMIT_ARGS": "--master local pyspark-shell"})
    assert kept == "--conf spark.x=y --master local pyspark-shell"


def test_what_is_hidden_stands_in_a_file_that_only_its_user_can_read(tmp_path: Path) -> None:
    check = """
import os, shlex, stat, sys
from pathlib import Path
from penstock.runtime.launch import submitting
with submitting({"spark.x": "y"}, {"spark.secret": "s3cret"}):
    words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
    assert "s3cret" not in os.environ["PYSPARK_SUBMIT_ARGS"]
    file = Path(words[words.index("--properties-file") + 1])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.read_text() == "spark.secret s3cret\\n"
    assert words[-1] == "pyspark-shell" and "--load-spark-defaults" in words and "spark.x=y" in words
assert not file.exists()
"""
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT, env=environment)


@pytest.mark.parametrize("sign", [" ", "="])
def test_properties_of_the_users_own_still_count(tmp_path: Path, sign: str) -> None:
    theirs, ours = tmp_path / "theirs.conf", tmp_path / "ours.conf"
    theirs.write_text("spark.a 1")
    given = f"--master local --properties-file{sign}{theirs} pyspark-shell"
    written = add_properties(given, {"spark.secret": "s"}, ours)
    assert shlex.split(written) == ["--properties-file", str(ours), "--master", "local", "pyspark-shell"]
    assert ours.read_text() == "spark.a 1\nspark.secret s\n"
    with pytest.raises(BadInput, match="no such file"):
        add_properties("--properties-file /none pyspark-shell", {"spark.secret": "s"}, ours)


def run(tmp_path: Path, text: str, *before: str, after: tuple[str, ...] = ()) -> Any:
    (tmp_path / "sibling.py").write_text("NAME = 'a module beside the script'")
    (tmp_path / "job.py").write_text(text)
    command = [sys.executable, "-m", "penstock.cli", "run", *before, str(tmp_path / "job.py"), *after]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_the_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    text = "import sys, sibling\nprint(__name__, sys.argv[1:], sys.path[0], sibling.NAME)"
    done = run(tmp_path, text, after=("--json", "-x", "two words"))
    assert done.returncode == 0
    expected = f"__main__ ['--json', '-x', 'two words'] {tmp_path} a module beside the script\n"
    assert done.stdout == expected
    assert "never started Spark" in done.stderr


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('enough')", 1, "enough\n"),
        ("raise ValueError('boom')", 1, "ValueError: boom\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
        ("def broken(:", 1, "SyntaxError"),
    ],
)
def test_the_exit_code_is_the_scripts_own(tmp_path: Path, text: str, code: int, said: str) -> None:
    """Of `run_script` alone: that the command ends with it is shown by what follows."""
    (tmp_path / "job.py").write_text(text)
    call = "import sys; from pathlib import Path; from penstock.runtime.launch import run_script"
    call += "; sys.exit(run_script(Path(sys.argv[1]), []))"
    command = [sys.executable, "-c", call, str(tmp_path / "job.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == code
    assert said in done.stderr


def test_the_command_ends_as_an_interrupted_script_does(tmp_path: Path) -> None:
    done = run(tmp_path, "raise KeyboardInterrupt")
    assert done.returncode == 130
    assert "KeyboardInterrupt\n" in done.stderr


def test_a_traceback_shows_the_script_alone(tmp_path: Path) -> None:
    done = run(tmp_path, "def fail():\n    raise ValueError('boom')\nfail()")
    assert "job.py" in done.stderr
    assert "runpy" not in done.stderr
    assert "launch.py" not in done.stderr


def test_with_json_standard_output_holds_one_object(tmp_path: Path) -> None:
    done = run(tmp_path, "import os\nprint('{}')\nos.system('echo []')\nraise SystemExit(3)", "--json")
    assert done.returncode == 3
    result = json.loads(done.stdout)
    assert (result["exit_code"], result["applications"]) == (3, [])
    assert "{}" in done.stderr
    assert "[]" in done.stderr


SPEAKING_LAST = """
import atexit, sys, threading, time
def later():
    time.sleep(0.5)
    print("from a thread", flush=True)
threading.Thread(target=later).start()
atexit.register(print, "from an exit handler")
"""


def test_with_json_the_object_comes_last_whatever_the_script_leaves_behind(tmp_path: Path) -> None:
    done = run(tmp_path, SPEAKING_LAST, "--json")
    assert json.loads(done.stdout)["exit_code"] == 0
    assert "from a thread" in done.stderr
    assert "from an exit handler" in done.stderr


@pytest.mark.parametrize("ending", ["sys.stdout.close()", "sys.stdout = None", "os.close(1)"])
def test_a_script_that_gives_up_its_output_keeps_its_exit_code(tmp_path: Path, ending: str) -> None:
    done = run(tmp_path, f"import os, sys\n{ending}\nsys.exit(7)", "--json")
    assert done.returncode == 7
    assert json.loads(done.stdout)["exit_code"] == 7
    assert "Traceback" not in done.stderr


def test_a_script_that_fails_without_output_shows_its_own_error(tmp_path: Path) -> None:
    done = run(tmp_path, "import sys\nsys.stdout.close()\nraise ValueError('boom')")
    assert done.returncode == 1
    assert "ValueError: boom" in done.stderr
    assert "launch.py" not in done.stderr


def test_settings_reach_spark_before_it_starts(tmp_path: Path) -> None:
    done = run(tmp_path, "import os\nprint(os.environ['PYSPARK_SUBMIT_ARGS'])", "--conf", "spark.x=a b")
    assert done.stdout == "--conf 'spark.x=a b' pyspark-shell\n"
