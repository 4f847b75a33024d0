"""Runs the tests on a cluster with each version of Spark and Python, and writes what passed into the docs.

Each Spark runs with the oldest Python that is here, and the newest Spark with every Python.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
SPARKS = ("4.1", "4.2", "4.3")
PYTHONS = ("3.11", "3.12", "3.13")
ROOMS: Mapping[str, tuple[str, ...]] = {
    "observe": ("test_observe.py", "test_observe_files.py", "test_observe_running.py"),
    "act": ("test_act.py",),
    "attach": ("test_attach.py",),
    "migrate": ("test_migrate.py",),
    "diagnose": ("test_diagnose.py",),
}
"""What is tried, and the files under tests/spark that try it."""
PAGE, HEADING = ROOT / "docs" / "limitations.md", "## Where it was tried\n"
BEGIN, END = "<!-- written by make test-versions -->", "<!-- end -->"
ASK = "import sys; print('{}.{}'.format(*sys.version_info))"
FOLLOWS_SPARK = ("pyspark", "py4j")
"""Pins of requirements.txt that another Spark replaces: PySpark says which Py4J it takes."""


@dataclass(frozen=True)
class Pair:
    """A version of Spark, a version of Python, and the program that is this Python."""

    spark: str
    python: str
    program: str

    @property
    def environment(self) -> Path:
        """Where the two are installed."""
        return ROOT / ".venv-versions" / f"spark{self.spark}-python{self.python}"


@dataclass(frozen=True)
class Counts:
    """How the tests of one room ended."""

    passed: int
    failed: int
    skipped: int

    def describe(self) -> str:
        """Say how many ended in which way; what is none is left out."""
        told = ((self.passed, "passed"), (self.failed, "failed"), (self.skipped, "skipped"))
        return ", ".join(f"{count} {word}" for count, word in told if count) or "nothing ran"


@dataclass(frozen=True)
class Row:
    """One environment that ran: the exact version of its Spark, and its tests room by room."""

    spark: str
    python: str
    rooms: Mapping[str, Counts]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 if everything passed, 1 if not, 2 where nothing can run."""
    parser = argparse.ArgumentParser(prog="make test-versions", description=__doc__)
    parser.add_argument("--spark", action="append", choices=SPARKS, help="this Spark alone; may be repeated")
    parser.add_argument(
        "--python", action="append", choices=PYTHONS, help="this Python alone; may be repeated"
    )
    given = parser.parse_args(arguments)
    wanted = given.python or PYTHONS
    found = dict(find_pythons(wanted, os.environ))
    for line in describe_missing(wanted, found):
        say(line)
    if not found:
        return 2
    rows = [run_pair(pair) for pair in choose_pairs(given.spark or SPARKS, found)]
    PAGE.write_text(put_table(PAGE.read_text(encoding="utf-8"), write_table(rows)), encoding="utf-8")
    say(f"the table is in {PAGE.relative_to(ROOT)}")
    return int(any(counts.failed or not counts.passed for row in rows for counts in row.rooms.values()))


def find_pythons(wanted: Iterable[str], environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Find a program for each version: on the PATH, or among those of pyenv; each is asked what it is."""
    places = [Path(one) for one in environment.get("PATH", "").split(os.pathsep) if one]
    home = environment.get("PYENV_ROOT") or str(Path(environment.get("HOME", "/")) / ".pyenv")
    for version in wanted:
        named = [place / f"python{version}" for place in places]
        kept = sorted((Path(home) / "versions").glob(f"{version}.*/bin/python"), reverse=True)
        program = next((one for one in [*named, *kept] if one.is_file() and ask(one) == version), None)
        if program is not None:
            yield version, str(program)


def ask(program: Path) -> str | None:
    """Ask a Python for its version; None where it does not run, as a version manager's stub."""
    done = subprocess.run([str(program), "-c", ASK], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def describe_missing(wanted: Iterable[str], found: Mapping[str, str]) -> Iterator[str]:
    """Say which Pythons are not here, and the way out."""
    for version in wanted:
        if version not in found:
            yield (
                f"Python {version} is not here, so nothing is run with it: put python{version} on the PATH, "
                f"or install it with pyenv, and run make again"
            )


def choose_pairs(sparks: Sequence[str], pythons: Mapping[str, str]) -> list[Pair]:
    """Choose each Spark with the oldest Python, and the newest Spark with every Python."""
    oldest = min(pythons, key=order)
    newest = max(sparks, key=order)
    chosen = [(spark, oldest) for spark in sorted(sparks, key=order)]
    chosen += [(newest, python) for python in sorted(pythons, key=order) if python != oldest]
    return [Pair(spark, python, pythons[python]) for spark, python in chosen]


def order(version: str) -> tuple[int, ...]:
    """Return a version's numbers: 3.9 comes before 3.11."""
    return tuple(map(int, version.split(".")))


def run_pair(pair: Pair) -> Row:
    """Make the environment where there is none, and run the tests of each room in it."""
    say(f"Spark {pair.spark} with Python {pair.python}")
    pins = write_pins((ROOT / "requirements.txt").read_text().split(), pair.spark)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pins) + "\n")
        file.flush()
        words = ["scripts/setup.sh", "environment", str(pair.environment), pair.program, file.name]
        subprocess.run(words, cwd=ROOT, check=True)
    python = str(pair.environment / "bin" / "python")
    exact = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    rooms = {room: run_room(python, files) for room, files in ROOMS.items()}
    return Row(exact.stdout.strip(), pair.python, rooms)


def write_pins(requirements: Iterable[str], spark: str) -> list[str]:
    """Return the pins with the newest release of this Spark in place of the one that is pinned."""
    kept = [pin for pin in requirements if pin.partition("==")[0].lower() not in FOLLOWS_SPARK]
    return [*kept, f"pyspark=={spark}.*"]


def run_room(python: str, files: Iterable[str]) -> Counts:
    """Run these tests; what they print goes to our own output."""
    paths = [str(ROOT / "tests" / "spark" / file) for file in files]
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        words = [python, "-m", "pytest", "-m", "spark and not soak", f"--junitxml={report}", *paths]
        ended = subprocess.run(words, cwd=ROOT, check=False)
        return read_report(report.read_text(encoding="utf-8")) if report.is_file() else lost(ended.returncode)


def lost(code: int) -> Counts:
    """Count a run that has left no report as one failure."""
    say(f"pytest ended with {code} and has left no report")
    return Counts(0, 1, 0)


def read_report(text: str) -> Counts:
    """Count what pytest reports; a test that could not be set up has failed."""
    suites = list(ElementTree.fromstring(text).iter("testsuite"))

    def total(*names: str) -> int:
        return sum(int(suite.get(name, "0")) for suite in suites for name in names)

    failed, skipped = total("failures", "errors"), total("skipped")
    return Counts(total("tests") - failed - skipped, failed, skipped)


def write_table(rows: Sequence[Row]) -> str:
    """Write a row for each environment, with the tests of each room."""
    head = ["Spark", "Python", *ROOMS]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [row.spark, row.python, *(row.rooms[room].describe() for room in ROOMS)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put_table(page: str, table: str) -> str:
    """Put the table into the page, in place of an earlier one."""
    block = f"{BEGIN}\n\nTests on a cluster, as `make test-versions` ran them:\n\n{table}\n\n{END}\n"
    if BEGIN in page:
        before, _, rest = page.partition(BEGIN)
        return before + block + rest.partition(f"{END}\n")[2]
    before, heading, after = page.partition(HEADING)
    if not heading:
        raise ValueError(f"the page has no {HEADING.strip()!r}")
    return f"{before}{heading}\n{block}{after}"


def say(message: str) -> None:
    """Say how far it is."""
    sys.stderr.write(f"test-versions: {message}\n")


if __name__ == "__main__":
    sys.exit(main())
