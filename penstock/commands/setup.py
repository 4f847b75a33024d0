"""`penstock config`: the settings in effect, and where each came from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import Json, answer, reported
from penstock.errors import BadInput

Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="A Spark setting, key=value; may be given several times.")
]


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("config")(config)


@reported
def config(
    file: Annotated[Path | None, typer.Option("--config", help="The settings file.")] = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Print the settings in effect, and where each came from."""
    from penstock.decide.registry import policy_entry
    from penstock.journal.address import without_password
    from penstock.settings import load_settings

    spark_conf = parse_conf(conf or ())
    settings = load_settings(file, os.environ, spark_conf)
    policy_entry(settings.policy)
    values = settings.model_dump(mode="json") | {"journal": without_password(settings.journal)}
    places = _places(file, spark_conf)
    rows = {
        name: {"value": value, "from": places.get(name, "default")} for name, value in sorted(values.items())
    }
    answer({"settings": rows}, as_json, _table(rows))


def parse_conf(given: Iterable[str]) -> dict[str, str]:
    """Split key=value pairs; the keys are Spark's, so they start with `spark.`."""
    pairs: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise BadInput(f"--conf: {text!r} is not key=value")
        if not key.strip().startswith("spark."):
            raise BadInput(f"--conf: {key.strip()!r} is not a Spark key: those start with 'spark.'")
        pairs[key.strip()] = value
    return pairs


def _places(file: Path | None, spark_conf: Mapping[str, str]) -> dict[str, str]:
    """Setting → where it was written; called once everything is known to be readable."""
    from penstock import settings_sources as sources
    from penstock.settings import CONFIG_VARIABLE, Settings

    known = tuple(Settings.model_fields)
    named = os.environ.get(CONFIG_VARIABLE)
    path = file or (Path(named) if named else None)
    given = {
        **(sources.from_yaml(str(path), path.read_text(encoding="utf-8"), known) if path else {}),
        **sources.from_environment(os.environ, known, reserved=frozenset({CONFIG_VARIABLE})),
        **sources.from_spark(spark_conf, known),
    }
    return {name: one.place for name, one in given.items()}


def _table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, header_style="dim")
    for heading in ("setting", "value", "from"):
        # a name or a place that is cut off tells nothing
        table.add_column(heading, overflow="fold")
    for name, row in rows.items():
        style = "dim" if row["from"] == "default" else ""
        table.add_row(name, Text(str(row["value"])), Text(str(row["from"]), style=style))
    return table
