"""The prose says what the commands really are, its links lead somewhere, and its examples run."""

import ast
import importlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from penstock.cli import app, perform
from penstock.simulate.loading import parse

ROOT = Path(__file__).parent.parent
OUTER = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "penstock_lab/NOTEBOOK.md")
OTHER_PAGES = [ROOT / name for name in OUTER]
PAGES = sorted([*OTHER_PAGES, *(ROOT / "docs").rglob("*.md")])
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INVOCATION = re.compile(r"\bpenstock ([a-z]+(?:-[a-z]+)*)\b([^`|\n]*)")
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


def test_every_command_and_target_is_on_a_page() -> None:
    commands = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"penstock {command}" in commands, command
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in ("demo", "test", "bench", "lint"):
        assert f"make {target}" in readme, target


def examples(page: str, kind: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [body for found, body in BLOCK.findall(text) if found == kind]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_examples_are_python_and_import_what_is_there(page: Path) -> None:
    for body in examples(str(page), "python"):
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("penstock"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), f"{named(page)}: {body}"


def run_and_show(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command of the prose prints, on either output, however it is laid out."""
    perform(shlex.split(line)[1:])
    shown = capsys.readouterr()
    return " ".join((shown.out + shown.err).split())


def test_decisions_from_recorded_rates_are_those_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {body.splitlines()[0].removeprefix("# "): body for body in examples("decide-offline.md", "")}
    files["bad.csv"] = files["rates.csv"].replace("2,0,2,10.2,12000", "2,0,2,10.2,twelve")
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    for body in examples("decide-offline.md", "console"):
        for part in body.split("$ ")[1:]:
            line, _, printed = part.partition("\n")
            assert " ".join(printed.split()) in run_and_show(line, capsys), line


def test_the_simulation_of_the_page_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    (body,) = (one for one in examples("simulate.md", "console") if "dhalion-wordcount" in one)
    printed = body.partition("--policy ds2\n")[2].partition("$ ")[0]
    shown = run_and_show("penstock simulate dhalion-wordcount --policy ds2", capsys)
    assert " ".join(printed.split()) in shown


def test_scenarios_and_pipelines_of_the_pages_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, batches = examples("simulate.md", "yaml")
    for text in (whole, f"duration: 60s\n{batches}"):
        assert parse(text, tmp_path / "mine.yaml").scenario.operators
    (written,), code = examples("pipelines.md", "yaml"), examples("pipelines.md", "python")[-1]
    (tmp_path / "words.yaml").write_text(written)
    (tmp_path / "words.py").write_text(code)
    assert perform(["pipeline", "draw", str(tmp_path / "words.yaml")]) == 0
    assert "sentences" in capsys.readouterr().out


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
