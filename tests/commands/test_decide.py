"""`penstock decide`: recorded rates in, one decision per epoch out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.decide.registry import policy_entry
from penstock.settings.model import Settings
from tests.commands.command_line import Captured, complaint, last_json

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
def recorded(tmp_path: Path) -> list[str]:
    (tmp_path / "topology.csv").write_text(TOPOLOGY)
    (tmp_path / "rates.csv").write_text(RATES)
    return ["--topology", str(tmp_path / "topology.csv"), "--rates", str(tmp_path / "rates.csv")]


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


def test_decide_by_another_policy_gives_its_reason(capsys: Captured, recorded: list[str]) -> None:
    chosen = ["--policy", "queueing", "--latency-target", "1s"]
    assert perform(["decide", *chosen, *recorded, "--json"]) == 0
    epoch = last_json(capsys)["epochs"][0]
    # with a load of one nothing is stable: one more than the 5 and 4 of ds2
    assert epoch["parallelism"] == {"flat map": 6, "count": 5}
    assert "to meet the latency target" in epoch["reason"]
    assert perform(["decide", *chosen, *recorded]) == 0
    caught = capsys.readouterr()
    assert "to meet the latency target" in caught.out
    assert "backlogs are not recorded" in caught.err


def test_targets_of_operators_are_enough_for_queueing() -> None:
    of_operators = Settings(queueing_operator_targets={"count": 2.0})
    assert policy_entry("queueing").lacks(of_operators) == ""
    assert policy_entry("queueing").lacks(Settings()) == "latency_target"
    assert policy_entry("drs").lacks(of_operators) == "latency_target"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--policy", "threshold"], "backlogs"),
        (["--policy", "forecast:threshold"], "backlogs"),
        (["--policy", "autrascale"], "latency"),
        (["--policy", "trigger-interval"], "batch times"),
        (["--policy", "queueing"], "latency_target"),
        (["--policy", "queueing", "--latency-target", "soon"], "latency_target"),
        (["--policy", "dhalion", "--target-rate-ratio", "1.5"], "--target-rate-ratio"),
        (["--policy", "ds3"], "did you mean"),
    ],
)
def test_a_policy_that_cannot_decide_says_what_is_missing(
    capsys: Captured, recorded: list[str], options: list[str], told: str
) -> None:
    assert perform(["decide", *options, *recorded]) == 2
    assert told in complaint(capsys)


@pytest.mark.parametrize("policy", ["ds2", "ds2-learned", "forecast:ds2", "dhalion", "reactive-cpu"])
def test_a_latency_target_is_refused_by_those_that_aim_at_none(
    capsys: Captured, recorded: list[str], policy: str
) -> None:
    assert perform(["decide", "--policy", policy, "--latency-target", "1ms", *recorded]) == 2
    told = complaint(capsys)
    assert told.startswith(f"--latency-target: {policy} aims at no latency on recorded rates")
    assert "queueing" in told and "drs" in told
    assert perform(["decide", "--policy", policy, *recorded, "--json"]) == 0


@pytest.mark.parametrize("policy", ["queueing", "drs", "drs-observed", "forecast:queueing"])
def test_a_latency_target_is_kept_by_those_that_aim_at_one(
    capsys: Captured, recorded: list[str], policy: str
) -> None:
    sizes = []
    for target in ("10s", "6ms"):
        assert perform(["decide", "--policy", policy, "--latency-target", target, *recorded, "--json"]) == 0
        sizes.append(sum(last_json(capsys)["epochs"][0]["parallelism"].values()))
    assert sizes[0] < sizes[1]
