"""`penstock config`, and the options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import Json, answer
from penstock.errors import BadInput

Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The settings file.")]
PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="NAME", help="The policy that proposes sizes; `penstock policies` lists them."
    ),
]
ObserveOnly = Annotated[bool, typer.Option("--observe", help="Watch and decide, change nothing.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be given several times."),
]


def config(file: Config = None, conf: Conf = None, as_json: Json = False) -> None:
    """Print the settings in effect, and where each came from."""
    from penstock.fleet.kafka import hide_options
    from penstock.journal.ports import hide_password
    from penstock.plugins.finding import find_policy
    from penstock.settings.model import collect_given, load_settings

    spark_conf = parse_conf(conf or ())
    settings = load_settings(file, os.environ, spark_conf)
    find_policy(settings.run.policy)
    values = settings.flat() | {
        "journal": hide_password(settings.run.journal),
        "fleet_kafka_options": hide_options(settings.membership.kafka_options),
        "dashboard_token": "***" if settings.dashboard.token else None,
    }
    given = collect_given(file, os.environ, spark_conf, {})
    rows = {
        name: {"value": value, "from": given[name].place if name in given else "default"}
        for name, value in sorted(values.items())
    }
    answer({"settings": rows}, as_json, _table(rows))


def parse_seconds(option: str, text: str) -> float:
    """Return the seconds of a duration such as 10s."""
    from penstock.units.fields import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from None


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


def _table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    from penstock.view.terminal import make_table

    dim = {"default": "dim"}
    cells = [
        (name, Text(str(row["value"])), Text(row["from"], style=dim.get(row["from"], "")))
        for name, row in rows.items()
    ]
    table = make_table(("setting", "value", "from"), cells)
    for column in table.columns:
        # a name or a place that is cut off tells nothing
        column.overflow = "fold"
    return table
