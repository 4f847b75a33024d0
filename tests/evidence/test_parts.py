"""Parts on the smallest setting: the simulated ones whole, the measured ones from made-up reports."""

import orjson
import pytest

from penstock.cli import perform
from penstock.evidence import measured
from penstock.evidence.findings import Verdict
from penstock.evidence.simulated import TABLE_4, accuracy, heron
from penstock.evidence.skewed import skew


def verdicts(result):
    return {finding.result: finding.verdict for finding in result.findings}


def test_ds2_takes_one_step_where_dhalion_takes_many():
    found = verdicts(heron(True, lambda _: None))
    assert found["steps of DS2"] is Verdict.REPRODUCED
    assert found["instances of count, DS2"] is Verdict.REPRODUCED


def test_the_chosen_size_is_the_least_that_keeps_up():
    assert set(verdicts(accuracy(True, lambda _: None)).values()) == {Verdict.REPRODUCED}


def test_skew_leaves_ds2_at_the_size_that_fits_without_it():
    found = verdicts(skew(True, lambda _: None))
    assert {found[f"skew of {share}: final size"] for share in ("20%", "50%", "70%")} == {Verdict.REPRODUCED}


def test_table_4_is_whole():
    steps = [len(path) or 1 for sizes in TABLE_4.values() for path in sizes.values()]
    # "three steps in 3 experiments, two steps in 14 experiments, and a single step in 19 out of 36"
    assert [steps.count(number) for number in (3, 2, 1)] == [3, 14, 19]


def test_published_tables_have_their_nine_intervals():
    assert list(measured.TABLE_3_3) == list(measured.TABLE_3_4) == [2**power for power in range(9)]


def test_the_command_writes_report_and_state_and_resumes(tmp_path, capsys):
    arguments = [
        "evidence",
        "--quick",
        "--only",
        "heron",
        "--only",
        "skew-remedies",
        "--directory",
        str(tmp_path),
    ]
    assert perform([*arguments, "--json"]) == 0
    first = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert [part["status"] for part in first["parts"]] == ["done", "missing"]
    assert {path.name for path in tmp_path.iterdir()} == {"evidence.html", "evidence.json", "state.json"}
    assert perform([*arguments, "--json"]) == 0
    second = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert second["parts"][0] == first["parts"][0]
    assert orjson.loads((tmp_path / "evidence.json").read_bytes()) == second


def test_a_broken_state_file_is_bad_input(tmp_path, capsys):
    (tmp_path / "state.json").write_text("not JSON")
    assert perform(["evidence", "--only", "heron", "--directory", str(tmp_path)]) == 2
    assert "state.json is not a state file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["herons", "nothing-like-it"])
def test_an_unknown_part_is_bad_usage(name, capsys):
    assert perform(["evidence", "--only", name]) == 2
    assert name in capsys.readouterr().err
