"""The prose says what the commands really are, its links lead somewhere, and its examples run."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from penstock.cli import app
from penstock.dataflow.readiness import NotReady
from penstock.decide.policy import Hold, Scale
from tests.fakes import a_query, a_window

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INVOCATION = re.compile(r"\bpenstock ([a-z]+)\b([^`|\n]*)")
NO_PLACE_FOR = {
    "a package registry": re.compile(r"\b(?:pypi|pythonhosted|anaconda|maven|artifactory)\.(?:org|io|com)\b"),
    "somebody's machine": re.compile(r"/(?:home|Users)/\w+|/root/|/work/"),
}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> Iterator[str]:
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return (target for target in LINK.findall(prose) if "://" not in target)


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shell_lines(page: Path) -> Iterator[str]:
    """What a reader would type: lines of console blocks, and commands quoted in the text."""
    text = page.read_text(encoding="utf-8")
    for kind, body in BLOCK.findall(text):
        if kind == "console":
            yield from (line[2:].partition(" # ")[0] for line in body.splitlines() if line.startswith("$ "))
    yield from re.findall(r"`([^`\n]*\bpenstock [^`\n]*)`", BLOCK.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{named(page)} links to {target}"
        if anchor:
            assert anchor in anchors(linked), f"{named(page)} links to {target}"


def options_of(command: typer.core.TyperCommand, rest: str) -> set[str]:
    """Those of a command, or of the one of its group that is named next."""
    members = getattr(command, "commands", {})
    named_next = re.match(r"\s+([a-z]+)", rest)
    if members and named_next:
        assert named_next[1] in members, rest
        command = members[named_next[1]]
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_options_exist(page: Path) -> None:
    for line in shell_lines(page):
        for command, rest in INVOCATION.findall(line):
            assert command in COMMANDS, f"{named(page)}: {line}"
            # what follows a script belongs to the script
            own = rest.partition("job.py")[0]
            known = options_of(COMMANDS[command], own)
            for option in re.findall(r"--[a-z][a-z-]*", own):
                assert option in known, f"{named(page)}: {line}"


def test_readme_names_every_command_and_target() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"penstock {command}" in readme, command
    for target in ("demo", "test", "bench", "lint"):
        assert f"make {target}" in readme, target


def test_example_policy_answers_windows() -> None:
    text = (ROOT / "docs" / "writing-a-policy.md").read_text(encoding="utf-8")
    example: dict[str, type] = {}
    exec(next(body for kind, body in BLOCK.findall(text) if kind == "python"), example)
    policy = example["OneMoreWhenLate"]()
    assert isinstance(policy.propose(a_window(queries=())), NotReady)
    answers = {type(policy.propose(a_window(queries=(a_query(batch_seconds=(s,)),)))) for s in (1.0, 60.0)}
    assert answers == {Hold, Scale}


def test_no_file_names_a_registry_or_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if not name or path.suffix == ".png" or path.samefile(__file__):
            continue
        text = path.read_text(encoding="utf-8")
        for what, pattern in NO_PLACE_FOR.items():
            found = pattern.search(text)
            assert found is None, f"{name} names {what}: {found.group() if found else ''}"
