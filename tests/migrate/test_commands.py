"""`penstock state`, `rebalance` and `drain` against a stand-in for a running application."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import perform
from penstock.errors import Unsupported
from penstock.runtime.control import ControlServer
from tests.view import made_up_state

Captured = pytest.CaptureFixture[str]

OLD = {"state": "done", "moved": 9, "of": 9, "batch_seconds": 1.0, "steady_seconds": 1.0, "detail": "before"}


def standing(state: str, moved: int, detail: str = "") -> dict[str, Any]:
    return {**OLD, "state": state, "moved": moved, "of": 3, "detail": detail}


class Application:
    """Answers as the contract of the control socket says, and remembers what it was asked."""

    def __init__(
        self, *standings: dict[str, Any] | None, plans: int = 1, obstacle: str | None = None
    ) -> None:
        self.requests: list[Mapping[str, Any]] = []
        self._standings = list(standings)
        self._plans = [made_up_state.a_plan()] * plans
        self._obstacle = obstacle

    def __call__(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if command == "hello":
            return {"application": "app-1", "name": "word count"}
        self.requests.append({key: value for key, value in request.items() if key != "version"})
        if command == "state":
            return {"state": made_up_state.state(obstacle=self._obstacle)}
        if command == "migration":
            return {"migration": self._standings.pop(0) if len(self._standings) > 1 else self._standings[0]}
        if command == "stop-migration":
            return {"stopping": True}
        if self._obstacle is not None:
            raise Unsupported(self._obstacle)
        return {"plans": self._plans, "started": bool(self._plans) and not request["dry_run"]}


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    file = tmp_path / "settings.yaml"
    file.write_text(f"journal: {tmp_path / 'journal.db'}\nruntime_directory: {tmp_path / 'run'}\n")
    return ["--config", str(file)]


@contextmanager
def listening(directory: Path, application: Application) -> Iterator[list[Mapping[str, Any]]]:
    with closing(ControlServer(directory / "run", "app-1", application)):
        yield application.requests


def last_json(captured: Captured) -> Any:
    *others, last = captured.readouterr().out.splitlines()
    assert not [line for line in others if line.startswith(("{", "["))]
    return json.loads(last)


def test_state(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with listening(tmp_path, Application()):
        assert perform(["state", *config]) == 0
        shown = capsys.readouterr().out
        assert perform(["state", "word count", *config, "--html", str(tmp_path / "s.html"), "--json"]) == 0
    assert "imbalance 62%" in shown
    assert "10.0.0.3" in shown
    told = last_json(capsys)
    assert (told["application"], len(told["queries"]), told["workers"][0]["slots"]) == ("app-1", 2, 2)
    assert "counts, after batch 120" in (tmp_path / "s.html").read_text()


def test_a_state_that_cannot_be_moved_is_shown_with_the_reason(
    capsys: Captured, config: list[str], tmp_path: Path
) -> None:
    obstacle = "state cannot be moved: local mode has one executor"
    with listening(tmp_path, Application(obstacle=obstacle)):
        assert perform(["state", *config]) == 0
        assert obstacle in capsys.readouterr().out
        assert perform(["rebalance", *config]) == 1
        assert capsys.readouterr().err == f"penstock: error: {obstacle}\n"


def test_a_dry_run_shows_the_plan_and_moves_nothing(
    capsys: Captured, config: list[str], tmp_path: Path
) -> None:
    with listening(tmp_path, Application()) as requests:
        assert perform(["rebalance", "--dry-run", *config]) == 0
        shown = capsys.readouterr().out
        assert perform(["rebalance", "--dry-run", "--strategy", "batched", *config, "--json"]) == 0
    assert "counts: 3 bins, 3.0 MB, fluid, 4 batches; imbalance 62% → 5%" in shown
    told = last_json(capsys)
    assert (told["started"], told["migration"], len(told["plans"])) == (False, None, 1)
    assert requests == [
        {"command": "rebalance", "strategy": None, "dry_run": True},
        {"command": "rebalance", "strategy": "batched", "dry_run": True},
    ]


def test_a_rebalancing_is_followed_to_its_end(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    # what is told first is still the migration before: the order waits for the loop's next tick
    application = Application(OLD, OLD, standing("moving", 1), standing("done", 3, "3 of 3 bins moved"))
    with listening(tmp_path, application) as requests:
        assert perform(["rebalance", *config, "--json"]) == 0
    told = last_json(capsys)
    assert (told["started"], told["migration"]["state"], told["migration"]["moved"]) == (True, "done", 3)
    assert [one["command"] for one in requests] == [
        "rebalance", "migration", "rebalance", "migration", "migration", "migration",
    ]  # fmt: skip


@pytest.mark.parametrize(("state", "code"), [("partial", 1), ("failed", 1), ("stopped", 0), ("done", 0)])
def test_the_exit_code_says_whether_it_succeeded(
    capsys: Captured, config: list[str], tmp_path: Path, state: str, code: int
) -> None:
    detail = "2 of 3 bins moved in 4 batches; 1 given up: executor 2 is gone"
    with listening(tmp_path, Application(None, standing(state, 2, detail))):
        assert perform(["rebalance", *config]) == code
    assert f"{state}: {detail}" in " ".join(capsys.readouterr().out.split())


def test_nothing_to_move(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with listening(tmp_path, Application(plans=0)) as requests:
        assert perform(["rebalance", *config]) == 0
    assert "nothing has to move" in capsys.readouterr().out
    assert len(requests) == 1


def test_drain_takes_the_executor_and_maybe_the_application(
    capsys: Captured, config: list[str], tmp_path: Path
) -> None:
    with listening(tmp_path, Application(None, standing("moving", 0))) as requests:
        assert perform(["drain", "3", "--no-wait", *config]) == 0
        assert perform(["drain", "app-1", "3", "--dry-run", *config]) == 0
        capsys.readouterr()
        assert perform(["drain", "app-1", "3", "4", *config]) == 2
        assert "drain takes [APP] EXECUTOR, not 3 names" in capsys.readouterr().err
        assert perform(["drain", "other", "3", *config]) == 2
        assert perform(["drain", *config]) == 2
    assert {one["executor"] for one in requests if one["command"] == "drain"} == {"3"}


def test_stop(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with listening(tmp_path, Application()) as requests:
        assert perform(["rebalance", "--stop", *config, "--json"]) == 0
    assert last_json(capsys)["stopping"] is True
    assert requests == [{"command": "stop-migration"}]


def test_an_unknown_strategy_is_bad_usage(capsys: Captured, config: list[str], tmp_path: Path) -> None:
    with listening(tmp_path, Application()) as requests:
        assert perform(["rebalance", "--strategy", "swift", *config]) == 2
    assert "unknown strategy 'swift': fluid, batched, optimized or all-at-once" in capsys.readouterr().err
    assert not requests
