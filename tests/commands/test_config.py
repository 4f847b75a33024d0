"""`penstock config`: the settings in effect, and where each came from."""

from __future__ import annotations

import json
import os
import subprocess

from penstock.cli import perform
from tests.commands.command_line import COMMAND, ROOT, Captured


def test_config_says_where_each_setting_came_from(config: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, "config", *config, "--conf", "spark.penstock.max.executors=9", "--json"],
        env={**os.environ, "PENSTOCK_UTILISATION": "0.7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    settings = json.loads(done.stdout)["settings"]
    assert settings["utilisation"] == {"value": 0.7, "from": "environment variable PENSTOCK_UTILISATION"}
    assert settings["max_executors"] == {"value": 9, "from": "Spark key spark.penstock.max.executors"}
    assert settings["journal"]["from"].endswith("settings.yaml line 1, journal")
    assert settings["policy_interval"] == {"value": 10.0, "from": "default"}


def test_config_for_people(capsys: Captured, config: list[str]) -> None:
    assert perform(["config", *config]) == 0
    assert "policy_interval" in capsys.readouterr().out


def test_config_for_people_cuts_nothing_off_and_shows_no_password() -> None:
    address = "postgresql://penstock:secret@a-host-with-a-long-name.example:5432/journal-of-the-fleet"
    done = subprocess.run(
        [*COMMAND, "config", "--conf", f"spark.penstock.journal={address}"],
        env={**os.environ, "COLUMNS": "60"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout
    assert "secret" not in done.stdout
