"""Commands that start Spark on a machine without Java."""

import os
import subprocess
import sys

import orjson
import pytest


@pytest.mark.parametrize(
    "command", [["workload", "paced"], ["fleet", "run", ".", "--once"], ["connect-server", "--port", "0"]]
)
def test_a_machine_without_java_is_told_so_in_words(command, tmp_path):
    called = [sys.executable, "-m", "penstock.cli", *command, "--json"]
    without_java = {**os.environ, "JAVA_HOME": str(tmp_path / "nowhere")}
    ended = subprocess.run(
        called, check=False, env=without_java, cwd=tmp_path, capture_output=True, timeout=120
    )
    assert ended.returncode == 1
    assert "Java 17 or later" in orjson.loads(ended.stdout.splitlines()[-1])["error"]
    assert b"Traceback" not in ended.stderr
