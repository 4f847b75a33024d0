"""Policies that installed packages add: the example of the page, broken ones, and none from here."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.errors import BadInput, BadSettings
from penstock.plugins.finding import find_policy, list_policies
from penstock.settings.model import Settings

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-policy.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BARE = """
from penstock.decide.policy import Hold

class Bare:
    name = "{name}"
    def propose(self, window):
        {body}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory on the path in which packages are installed; their modules are forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def install(place, module, points, code):
    """What installing a package leaves behind: its module, its metadata and its entry points."""
    (place / f"{module}.py").write_text(code)
    metadata = place / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n"
    )
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (metadata / "entry_points.txt").write_text(f"[penstock.policies]\n{lines}\n")


def install_example(place):
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    (code,) = (body for kind, body in blocks if kind == "python")
    (project,) = (tomllib.loads(body)["project"] for kind, body in blocks if kind == "toml")
    module = project["name"].replace("-", "_")
    install(place, module, project["entry-points"]["penstock.policies"], code)
    (typed,) = (body for kind, body in blocks if kind == "console")
    return [line.removeprefix("$ penstock ").split() for line in typed.splitlines()]


def last_json(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_example_of_the_page_works_as_the_page_says(place, capsys):
    check, listing, simulation, run = install_example(place)
    assert perform([*check, "--json"]) == 0
    assert last_json(capsys)["kept"]
    assert perform([*listing, "--json"]) == 0
    found = {one["name"]: one for one in last_json(capsys)["policies"]}
    own = found["one-more-when-late"]
    assert own["origin"] == "late-policy 1.0 (late_policy:OneMoreWhenLate)"
    assert own["usable_in"] == ["run", "simulate", "replay"]
    assert perform(listing) == 0
    assert "late-policy 1.0" in capsys.readouterr().out
    assert perform([*simulation, "--json"]) == 0
    (one,) = last_json(capsys)["policies"]
    assert one["policy"] == "one-more-when-late" and one["actions"]
    # the script is missing, the policy is not
    assert perform(run) == 2
    assert capsys.readouterr().err == "penstock: error: job.py: no such file\n"
    assert find_policy("forecast:one-more-when-late").make(Settings()).name == "forecast:one-more-when-late"
    with pytest.raises(BadSettings, match="sizes executors whose slots"):
        find_policy("one-more-when-late").check_place("pipeline run")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import no_such_module", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit('bye')", "cannot be imported: SystemExit: bye"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        ("Bare = 3", "is no class with a method `propose`"),
        (BARE.format(name="other", body="return Hold('x')"), "it calls itself 'other'"),
        (BARE.format(name="a b:c", body="return Hold('x')"), "not a word for --policy"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_told_in_one_line_and_harms_no_other(place, capsys, code, says):
    install_example(place)
    install(place, "broken_one", {"mine": "broken_one:Bare"}, code)
    entries, (line,) = list_policies()
    assert {"one-more-when-late", "ds2"} <= {entry.name for entry in entries}
    assert says in line and "\n" not in line and "broken" in line
    assert perform(["simulate", "spark-batches", "--policy", "mine"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert says in told


def test_no_package_takes_the_name_of_a_policy_of_penstock(place):
    install(place, "thief", {"ds2": "thief:Bare"}, BARE.format(name="ds2", body="return Hold('x')"))
    assert find_policy("ds2").origin == "penstock"
    _, (line,) = list_policies()
    assert "Penstock has a policy of this name" in line


def test_nothing_is_taken_from_the_current_directory(place, tmp_path_factory, monkeypatch):
    install_example(place)
    monkeypatch.chdir(place)
    with pytest.raises(BadSettings, match="unknown policy 'one-more-when-late'"):
        find_policy("one-more-when-late")
    # nor a module that is called like the installed one
    here = tmp_path_factory.mktemp("here")
    (here / "late_policy.py").write_text("raise RuntimeError('imported from here')")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    path = list(sys.path)
    assert find_policy("one-more-when-late").name == "one-more-when-late"
    assert sys.path == path


def test_an_unknown_name_suggests_installed_ones_too(place):
    install_example(place)
    with pytest.raises(BadSettings, match="did you mean 'one-more-when-late'"):
        find_policy("one-more-when-lat")


@pytest.mark.parametrize(
    ("body", "check"),
    [
        ("return None", "its answers are well formed"),
        ("return Hold('')", "its answers are well formed"),
        ("return Hold(f'{window.queries[0].name}')", "no window makes it raise or change what is not held"),
        ("import random; return Hold(str(random.random()))", "the same windows get the same answers"),
    ],
)
def test_a_policy_that_breaks_the_contract_is_told_how(place, capsys, body, check):
    install(place, "bare", {}, BARE.format(name="bare", body=body))
    assert perform(["check-policy", "bare:Bare", "--json"]) == 1
    broken = {one["check"]: one["problem"] for one in last_json(capsys)["checks"] if not one["kept"]}
    assert broken[check]
    assert perform(["check-policy", "bare:Bare"]) == 1
    assert "broken" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["", "bare", "no_such_module:Policy", "json:Nothing", "json:dumps"])
def test_what_is_no_policy_is_bad_input(capsys, named):
    assert perform(["check-policy", named]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_sections_that_the_settings_do_not_have_are_told(place):
    code = BARE.format(name="bare", body="return Hold('x')") + "    sections = (int,)\n    summary = 'x'\n"
    install(place, "bare", {"bare": "bare:Bare"}, code)
    with pytest.raises(BadInput, match="no section of the settings"):
        find_policy("bare")
