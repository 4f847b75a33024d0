"""Parts on the smallest setting: the simulated ones whole, the measured ones from made-up reports."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from penstock.cli import perform
from penstock.evidence.diagnosed import TABLE_3_3, TABLE_3_4
from penstock.evidence.findings import Verdict
from penstock.evidence.images import image_pipeline
from penstock.evidence.latency_targets import PUBLISHED, against_drs, instances_held, latency_targets
from penstock.evidence.other_rates import other_rates
from penstock.evidence.parts import PARTS
from penstock.evidence.running import _exists
from penstock.evidence.simulated import TABLE_4, accuracy, heron, least_instances, two_phases
from penstock.evidence.skewed import skew

SIMULATED = ("heron", "two-phases", "convergence", "image-pipeline")


def verdicts(result):
    return {finding.result: finding.verdict for finding in result.findings}


def test_ds2_takes_one_step_where_dhalion_takes_many():
    found = verdicts(heron(True, lambda _: None))
    assert found["steps of DS2"] is Verdict.REPRODUCED
    assert found["instances of count, DS2"] is Verdict.REPRODUCED
    assert found["Dhalion takes far longer to its last size"] is Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("held", "expected"), [(10, Verdict.REPRODUCED), (9, Verdict.WORSE), (11, Verdict.WORSE)]
)
def test_fewer_instances_than_the_least_that_keep_up_are_not_better(held, expected):
    assert least_instances("instances", 10, held, "dhalion: 22").verdict is expected


def test_the_first_phase_ends_at_the_published_size_and_the_second_is_shown_beside_it():
    sizes = {finding.result: finding for finding in two_phases(True, lambda _: None).findings}
    assert sizes["FlatMap and Count after the first phase"].verdict is Verdict.REPRODUCED
    assert sizes["FlatMap and Count after the second phase"].verdict is Verdict.NOT_COMPARABLE


def test_what_waits_is_drawn_and_sources_are_no_instances():
    found = image_pipeline(True, lambda _: None)
    waiting, _, instances = found.charts
    assert [name for name, _, _ in waiting.series] == ["threshold"] and max(waiting.series[0][2]) > 150
    assert verdicts(found)["threshold, images that wait (figure 5)"] is Verdict.REPRODUCED
    means = {one.result.partition(",")[0]: one.ours for one in found.findings if "mean inst" in one.result}
    for policy, _, counts in instances.series:
        assert min(counts) == 3 and sum(counts) / len(counts) == pytest.approx(means[policy], rel=0.05)


def test_the_chosen_size_is_the_least_that_keeps_up():
    assert set(verdicts(accuracy(True, lambda _: None)).values()) == {Verdict.REPRODUCED}


def test_figure_8_has_the_rate_and_the_latency_of_three_sizes():
    found = accuracy(True, lambda _: None)
    rates, latencies = found.charts
    smaller, chosen, larger = rates.series[0][2]
    assert smaller < 0.999 <= min(chosen, larger)
    slowest, *others = latencies.series[0][2]
    assert slowest > 100 * max(others)
    assert found.findings[0].ours.startswith("15: falls behind, 1 s, 16: keeps up, below 1 ms")


def test_autrascale_is_held_beside_drs_and_a_smaller_size_is_no_success_where_capacities_are_fitted():
    held, _, latency = latency_targets(True, lambda _: None).findings
    assert held.verdict is not Verdict.BETTER
    assert (latency.verdict, latency.published) == (Verdict.REPRODUCED, "0.172 s of 0.180 s")
    published = PUBLISHED["autrascale-yahoo-up"]
    assert [instances_held(published, size, 43).verdict for size in (30, 48, 60)] == [
        Verdict.NOT_COMPARABLE,
        Verdict.REPRODUCED,
        Verdict.WORSE,
    ]


@pytest.mark.parametrize(
    ("held", "other", "meets", "expected"),
    [
        (29, 33, True, Verdict.REPRODUCED),
        (65, 19, False, Verdict.REPRODUCED),
        (65, 19, True, Verdict.WORSE),
    ],
)
def test_more_instances_than_drs_are_worse_unless_drs_misses_the_target(held, other, meets, expected):
    finding = against_drs(PUBLISHED["autrascale-wordcount-up"], held, other, meets)
    assert finding.verdict is expected and finding.published == "65 against 19, which miss the targets"


@pytest.mark.parametrize(
    "part", [part for part in PARTS if part.name in SIMULATED], ids=lambda part: part.name
)
def test_every_finding_of_a_simulated_part_says_its_conditions_and_why_it_is_not_compared(part):
    found = part.run(True, lambda _: None).findings
    assert found and all("simulated" in finding.conditions for finding in found)
    assert all(finding.why for finding in found if finding.verdict is Verdict.NOT_COMPARABLE)


def test_a_model_of_one_rate_spares_samples_at_the_next():
    found = other_rates(True, lambda _: None)
    judged = verdicts(found)
    assert judged["query 11: sizes tried"] is Verdict.REPRODUCED
    assert judged["query 11: latency at the second rate"] is Verdict.REPRODUCED
    assert {"query 11: instances more than DS2's", "query 11: iterations more than DS2's"} <= judged.keys()
    bars, over_time, late = found.charts
    # sources are no instances
    assert [series[2][0] for series in bars.series] == [series[2][-1] for series in over_time.series]
    assert all(shares == sorted(shares) and shares[-1] == 1 for _, _, shares in late.series)


def test_skew_leaves_ds2_at_the_size_that_fits_without_it():
    found = verdicts(skew(True, lambda _: None))
    assert {found[f"skew of {share}: final size"] for share in ("20%", "50%", "70%")} == {Verdict.REPRODUCED}


def test_table_4_is_whole():
    steps = [len(path) or 1 for sizes in TABLE_4.values() for path in sizes.values()]
    # "three steps in 3 experiments, two steps in 14 experiments, and a single step in 19 out of 36"
    assert [steps.count(number) for number in (3, 2, 1)] == [3, 14, 19]


def test_published_tables_have_their_nine_intervals():
    assert list(TABLE_3_3) == list(TABLE_3_4) == [2**power for power in range(9)]


def test_the_command_writes_report_and_state_and_resumes(tmp_path, capsys):
    arguments = [
        "evidence",
        "--quick",
        "--only",
        "heron",
        "--only",
        "sizing",
        "--directory",
        str(tmp_path),
    ]
    waiting = "left to the full run" if _exists("penstock.bench.sizing") else "missing"
    assert perform([*arguments, "--json"]) == 0
    first = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    assert [part["status"] for part in first["parts"]] == ["done", waiting]
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


def test_a_part_that_fails_in_the_command_is_reported_and_the_others_go_on(tmp_path):
    arguments = [
        "--quick",
        "--json",
        "--directory",
        str(tmp_path),
        "--only",
        "heron",
        "--only",
        "bottlenecks",
    ]
    without_java = {**os.environ, "JAVA_HOME": str(tmp_path / "nowhere")}
    program = Path(sys.executable).with_name("penstock")
    ended = subprocess.run(
        [program, "evidence", *arguments], check=False, env=without_java, capture_output=True, timeout=120
    )
    assert ended.returncode == 1
    heron, bottlenecks = orjson.loads(ended.stdout.splitlines()[-1])["parts"]
    assert (heron["status"], bottlenecks["status"]) == ("done", "failed")
    assert "Java" in bottlenecks["reason"] or "JAVA" in bottlenecks["reason"]
    assert b"part 1 of 2, bottlenecks" in ended.stderr or b"part 2 of 2, bottlenecks" in ended.stderr
    assert "failed: " in (tmp_path / "evidence.html").read_text()
    assert [one["name"] for one in orjson.loads((tmp_path / "state.json").read_bytes())["parts"]] == [
        "heron",
        "bottlenecks",
    ]
