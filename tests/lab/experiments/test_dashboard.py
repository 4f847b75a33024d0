"""The made-up applications of the dashboard's benchmark answer as real ones do."""

from contextlib import closing
from pathlib import Path

from penstock.runtime.control import find_running
from penstock_lab.experiments.dashboard import DECISIONS, POINTS, MadeUpApplication


def test_the_past_is_sent_whole_once_and_again_when_it_has_changed(tmp_path: Path):
    with closing(MadeUpApplication(tmp_path / "run", 1, 1000.0)) as made:
        running = find_running(tmp_path / "run", None)
        whole = running.ask("status")["status"]
        assert (len(whole["recent"]), len(whole["decisions"])) == (POINTS, DECISIONS)
        assert "recent" not in running.ask("status", timeline=whole["timeline"])["status"]
        made.change(1010.0, 77.0)
        changed = running.ask("status", timeline=whole["timeline"])["status"]
        assert changed["recent"][-1]["observed_per_second"] == 77.0 and len(changed["recent"]) == POINTS
