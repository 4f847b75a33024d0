"""The made-up applications of the dashboard's benchmark answer as real ones do."""

from contextlib import closing
from pathlib import Path

from penstock.fleet.places import FleetDirectory
from penstock.runtime.control import find_running
from penstock_lab.experiments.dashboard import DECISIONS, POINTS, MadeUpApplication, write_round


def test_the_past_is_sent_whole_once_and_again_when_it_has_changed(tmp_path: Path):
    with closing(MadeUpApplication(tmp_path / "run", 1, 1000.0)) as made:
        running = find_running(tmp_path / "run", None)
        whole = running.ask("status")["status"]
        assert (len(whole["recent"]), len(whole["decisions"])) == (POINTS, DECISIONS)
        assert "recent" not in running.ask("status", timeline=whole["timeline"])["status"]
        made.change(1010.0, 77.0)
        changed = running.ask("status", timeline=whole["timeline"])["status"]
        assert changed["recent"][-1]["observed_per_second"] == 77.0 and len(changed["recent"]) == POINTS


def test_a_round_of_the_fleet_is_one_that_a_controller_could_have_written(tmp_path: Path) -> None:
    write_round(tmp_path, 1000.0, seed=0)
    status = FleetDirectory(tmp_path).status()
    assert status is not None and status.num_rows == 100_000
    assert len(set(status["application"].to_pylist())) == 100_000
    before = status["needed_parallelism"]
    write_round(tmp_path, 1000.0, seed=1)
    changed = FleetDirectory(tmp_path).status()
    assert changed is not None and changed["needed_parallelism"] != before, "the next round differs"
