"""Which versions are tried together, how a missing Python is told, and the table of what passed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.observe.versions import NEWEST_SPARK, OLDEST_SPARK, parse_version

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("versions", ROOT / "scripts" / "versions.py")
assert SPEC is not None and SPEC.loader is not None
versions = importlib.util.module_from_spec(SPEC)
sys.modules["versions"] = versions
SPEC.loader.exec_module(versions)
HERE = "{}.{}".format(*sys.version_info)


def pairs(sparks: list[str], pythons: list[str]) -> list[tuple[str, str]]:
    chosen = versions.choose_pairs(sparks, {python: f"/bin/python{python}" for python in pythons})
    assert all(pair.program == f"/bin/python{pair.python}" for pair in chosen)
    return [(pair.spark, pair.python) for pair in chosen]


def test_all_that_is_supported_is_tried() -> None:
    assert parse_version(versions.SPARKS[0]) == OLDEST_SPARK
    assert parse_version(versions.SPARKS[-1]) == NEWEST_SPARK
    needed = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert needed is not None and needed[1] == versions.PYTHONS[0]
    for files in versions.ROOMS.values():
        assert all((ROOT / "tests" / "spark" / file).is_file() for file in files)


def test_each_spark_is_tried_once_and_each_python_with_the_newest() -> None:
    assert pairs(["4.1", "4.2", "4.3"], ["3.11", "3.12", "3.13"]) == [
        ("4.1", "3.11"),
        ("4.2", "3.11"),
        ("4.3", "3.11"),
        ("4.3", "3.12"),
        ("4.3", "3.13"),
    ]
    assert pairs(["4.2"], ["3.13"]) == [("4.2", "3.13")]
    # by their numbers, not by their letters
    assert pairs(["4.10", "4.9"], ["3.11", "3.9"]) == [("4.9", "3.9"), ("4.10", "3.9"), ("4.10", "3.11")]


def program(path: Path, says: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_a_python_is_asked_what_it_is(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    # a stub of a version manager, and one that is another version
    program(first / "python3.12", "not installed", code=1)
    right = program(second / "python3.12", "3.12")
    program(first / "python3.11", "3.9")
    kept = program(tmp_path / "pyenv" / "versions" / "3.13.1" / "bin" / "python", "3.13")
    environment = {"PATH": f"{first}:{second}", "PYENV_ROOT": str(tmp_path / "pyenv")}
    found = dict(versions.find_pythons(versions.PYTHONS, environment))
    assert found == {"3.12": str(right), "3.13": str(kept)}
    (told,) = versions.describe_missing(versions.PYTHONS, found)
    assert told.startswith("Python 3.11 is not here") and "put python3.11 on the PATH" in told


def test_without_any_python_nothing_is_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "versions.py")],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("is not here") == len(versions.PYTHONS)


def test_only_spark_and_what_it_brings_differ_from_what_is_pinned() -> None:
    pins = (ROOT / "requirements.txt").read_text().split()
    made = versions.write_pins(pins, "4.1")
    assert set(pins) - set(made) == {pin for pin in pins if pin.startswith(("pyspark==", "py4j=="))}
    assert set(made) - set(pins) == {"pyspark==4.1.*"}


REPORT = """<testsuites><testsuite name="pytest" tests="12" failures="1" errors="2" skipped="3">
<testcase name="a"/></testsuite></testsuites>"""


def test_what_could_not_be_set_up_has_failed() -> None:
    counts = versions.read_report(REPORT)
    assert (counts.passed, counts.failed, counts.skipped) == (6, 3, 3)
    assert counts.describe() == "6 passed, 3 failed, 3 skipped"
    assert versions.Counts(0, 0, 0).describe() == "nothing ran"


def test_a_report_of_pytest_itself_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_one(): pass\ndef test_two(): assert False\n")
    report = tmp_path / "report.xml"
    words = [sys.executable, "-m", "pytest", f"--junitxml={report}", "-p", "no:cacheprovider", str(tmp_path)]
    subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert versions.read_report(report.read_text()) == versions.Counts(1, 1, 0)


@pytest.fixture
def table() -> str:
    rooms = {room: versions.Counts(number, 0, 0) for number, room in enumerate(versions.ROOMS, start=1)}
    rooms["migrate"] = versions.Counts(3, 1, 0)
    return versions.write_table([versions.Row("4.1.4", "3.11", rooms)])


def test_the_table_says_what_passed(table: str) -> None:
    assert table.splitlines() == [
        "| Spark | Python | observe | act | attach | migrate | diagnose |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 4.1.4 | 3.11 | 1 passed | 2 passed | 3 passed | 3 passed, 1 failed | 5 passed |",
    ]


def test_the_table_replaces_the_one_before(table: str) -> None:
    page = versions.PAGE.read_text()
    once = versions.put_table(page, table)
    assert table in once and versions.put_table(once, table) == once
    other = versions.put_table(once, table.replace("4.1.4", "4.1.5"))
    assert "4.1.4" not in other.partition(versions.END)[0] and "4.1.5" in other
    # nothing of the page is lost
    before, _, rest = once.partition(versions.BEGIN)
    if versions.BEGIN not in page:
        assert before.rstrip() + "\n" + rest.partition(versions.END + "\n")[2] == page
    with pytest.raises(ValueError, match="Where it was tried"):
        versions.put_table("# A page\n", table)
