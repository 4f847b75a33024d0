"""`penstock pipeline`: files that are wrong, pipelines that run, drawings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.commands.pipeline import attend_pipeline
from penstock.errors import BadInput
from penstock.runtime.control import ControlServer
from tests.commands.command_line import complaint, last_json
from tests.pipeline.test_definition import YAML, written


def answer(command, request):
    function = {"reads": ["images"], "writes": "small", "parallelism": 3, "least": 1, "most": 15}
    match command:
        case "hello":
            return {"application": "thumbnails", "name": "thumbnails"}
        case "status":
            said = {"at": 5.0, "kind": "waiting", "reason": "no batch has ended yet"}
            decided = {"policy": "ds2", "now": 7.0, "decisions": [said]}
            return {"status": {"pipeline": "thumbnails", "functions": {"resize": function}, **decided}}
        case "scale" if request["parallelism"] == 99:
            raise BadInput("'resize' may have 1 to 15 instances, not 99")
        case "scale":
            return {"parallelism": request["parallelism"] or 2}
    return {"stopping": True}


@pytest.fixture
def running(tmp_path: Path):
    (tmp_path / "run").mkdir(mode=0o700)
    server = ControlServer(tmp_path / "run" / "pipelines", "thumbnails", answer)
    yield server
    server.close()


@pytest.mark.parametrize("command", ["run", "draw"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("reads: images", "reads: pictures", "unknown topic 'pictures'"),
        ("of_images:resize", "of_images:shrink", "functions.resize.call: module 'sizes_of_images' has no"),
        ("reads: [small]", "reads: small, writes: images, schema: number bigint", "cycle"),
    ],
)
def test_mistakes_in_a_file_exit_2_and_name_the_place(tmp_path, capsys, command, old, new, said):
    file = written(tmp_path, YAML.replace(old, new))
    assert perform(["pipeline", command, str(file)]) == 2
    said_of_it = complaint(capsys)
    assert said in said_of_it and str(file) in said_of_it


def test_a_file_is_drawn_without_running(tmp_path, capsys):
    drawing = tmp_path / "thumbnails.svg"
    file = written(tmp_path, YAML)
    assert perform(["pipeline", "draw", str(file), "--svg", str(drawing), "--json"]) == 0
    assert last_json(capsys)["functions"]["recognise"] == {"reads": ["small"], "writes": None}
    assert drawing.read_text().startswith("<svg")


def test_a_drawing_that_cannot_be_written_is_an_error(tmp_path, capsys):
    assert perform(["pipeline", "draw", str(written(tmp_path, YAML)), "--svg", str(tmp_path)]) == 2
    assert "cannot be written" in complaint(capsys)


def test_a_running_pipeline_is_shown_scaled_and_stopped(running, config, capsys):
    assert perform(["pipeline", "status", *config, "--json"]) == 0
    assert last_json(capsys)["functions"]["resize"]["parallelism"] == 3
    assert perform(["pipeline", "draw", "thumbnails", *config]) == 0
    shown = capsys.readouterr().out
    assert "resize" in shown and "ds2, 2 s ago: waiting: no batch has ended yet" in shown
    assert perform(["pipeline", "scale", "resize", "7", *config, "--json"]) == 0
    seen = last_json(capsys)
    assert (seen["parallelism"], seen["pinned"]) == (7, True)
    assert perform(["pipeline", "scale", "resize", "auto", *config, "--json"]) == 0
    assert last_json(capsys)["pinned"] is False
    assert perform(["pipeline", "stop", "thumbnails", *config]) == 0
    assert "stopping" in capsys.readouterr().out


def test_refusals_and_bad_numbers(running, config, capsys):
    assert perform(["pipeline", "scale", "resize", "99", *config]) == 1
    assert "may have 1 to 15" in complaint(capsys)
    assert perform(["pipeline", "scale", "resize", "many", *config]) == 2
    assert "PARALLELISM: 'many' is neither a number of instances" in complaint(capsys)
    assert perform(["pipeline", "status", "other", *config]) == 2
    assert "thumbnails" in complaint(capsys)


class Ending:
    """A pipeline that was asked to stop from elsewhere, and takes two looks to end."""

    name, leads, stopping, looks = "words", False, True, 2

    def wait(self, seconds):
        self.looks -= 1
        return self.looks == 0

    def status(self):
        return {"running": False}

    def stop(self):
        self.leads = None


def test_a_pipeline_that_is_stopping_is_not_said_to_stand_by(capsys):
    handle = Ending()
    assert attend_pipeline(handle, None) == {"running": False} and handle.leads is None
    assert capsys.readouterr().err == ""


def test_nothing_runs(config, capsys):
    assert perform(["pipeline", "status", *config]) == 1
    said = complaint(capsys)
    assert said.startswith("no pipeline is running (looked in ")
    assert said.endswith("start one with `penstock pipeline run FILE.YAML`")


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("--executors", "3", "'3' is not LEAST:MOST, such as 1:8"),
        ("--executors", "4:2", "'4:2' is not LEAST:MOST, such as 1:8"),
        ("--trigger", "soon", "'soon' is not a duration"),
        ("--lease", "soon", "'soon' is not a duration"),
        ("--for", "soon", "'soon' is not a duration"),
    ],
)
def test_options_are_checked_before_anything_starts(tmp_path, capsys, option, given, said):
    assert perform(["pipeline", "run", str(written(tmp_path, YAML)), option, given]) == 2
    assert complaint(capsys).startswith(f"{option}: {said}")


@pytest.mark.parametrize("words", [["--policy", "ds3"], ["--conf", "spark.penstock.policy=ds3"]])
def test_an_unknown_policy_is_told_before_anything_starts(tmp_path, capsys, words):
    assert perform(["pipeline", "run", str(written(tmp_path, YAML)), *words]) == 2
    assert complaint(capsys) == "policy: unknown policy 'ds3'; did you mean 'ds2'?"


def test_a_policy_for_shared_slots_is_refused_before_anything_starts(tmp_path, capsys):
    words = ["--policy", "trigger-interval"]
    assert perform(["pipeline", "run", str(written(tmp_path, YAML)), *words]) == 2
    assert complaint(capsys) == (
        "policy: 'trigger-interval' sizes executors whose slots all operators share, and "
        "`penstock pipeline run` has operators with instances of their own; "
        "it can be used in run, simulate, replay"
    )


def test_a_file_whose_aliases_unfold_without_end_is_refused(tmp_path, capsys):
    doubled = [f"- &t{number} [*t{number - 1}, *t{number - 1}]" for number in range(1, 60)]
    file = written(tmp_path, "\n".join(["name: bomb", "at:", "- &t0 [x]", *doubled]))
    assert perform(["pipeline", "draw", str(file)]) == 2
    assert "aliases unfolded" in complaint(capsys)
