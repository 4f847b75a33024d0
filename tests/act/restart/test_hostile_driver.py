"""Words of a driver that no honest one says: they are noted, and the supervisor lives."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.commands.printing import json_line
from penstock.decide.outcome import Status
from tests.act.restart.stand_in import KEY
from tests.act.restart.test_shell import Stage

SETTINGS = '"settings": {"spark.executor.memory": "2g"}'
DEEP = "[" * 500 + "]" * 500


@pytest.fixture
def stage(tmp_path: Path):
    made = Stage(tmp_path)
    with closing(made.journal):
        yield made


@pytest.mark.parametrize(
    "number", ["1e400", "1e300", str(2**64), str(2**63), "-5", "0", '"9"', "true", "null"]
)
def test_a_restart_under_a_number_that_no_action_has(stage: Stage, number: str):
    said = f'{{"kind": "restart", "action": {number}, {SETTINGS}}}'
    assert stage.supervisor(writes=[said], asks={}).run() == 0
    assert stage.starts() == ["1g"]


@pytest.mark.parametrize("moment", ["1e400", "-1e400", "1e308", '"nan"', '"inf"', "null", "[]"])
def test_a_batch_at_no_time(stage: Stage, moment: str):
    said = f'{{"kind": "batch", "at": {moment}, "idle": false}}'
    assert stage.supervisor(writes=[said]).run() == 0
    record = stage.journal.action(stage.action)
    assert record.status is Status.DONE and record.measured is not None
    assert 0 < record.measured["pause_seconds"] < 3600


@pytest.mark.parametrize("statuses", [DEEP, '"text"', "7", "[1, 2]", '[{"a": ' + DEEP + "}]"])
def test_statuses_that_cannot_be_printed(stage: Stage, statuses: str):
    supervisor = stage.supervisor(writes=[f'{{"kind": "statuses", "statuses": {statuses}}}'], asks={})
    assert supervisor.run() == 0
    assert supervisor.statuses == [{"application": "app"}]
    assert b"app" in json_line({"applications": supervisor.statuses})


def test_statuses_without_end(stage: Stage):
    said = ['{"kind": "statuses", "statuses": [' + ",".join(['{"a": 1}'] * 100) + "]}"] * 15
    supervisor = stage.supervisor(writes=said, asks={})
    assert supervisor.run() == 0
    assert len(supervisor.statuses) <= 1000


@pytest.mark.parametrize(
    "said",
    [
        '{"kind": "attached", "settings": {"k": %s}}',
        '{"kind": "restart", "action": 1, "settings": {"k": %s}}',
        '{"kind": "restart", "action": %s, "settings": {}}',
        '{"kind": "batch", "at": %s, "idle": false}',
        '{"kind": %s}',
    ],
)
def test_words_that_are_nested_as_deeply_as_can_be_read(stage: Stage, said: str):
    nested = "[" * 1000 + "]" * 1000
    assert stage.supervisor(writes=[said % nested], asks={}).run() == 0
    assert stage.starts() == ["1g"]


def test_settings_in_effect_that_are_none(stage: Stage):
    said = ['{"kind": "attached", "settings": 7}', f'{{"kind": "attached", "settings": {DEEP}}}', "7", "nul"]
    assert stage.supervisor(writes=said, fixed={KEY: "1g"}, asks={}).run() == 0
