"""`penstock doctor`: what an application needs of this machine, each with a tick or the way out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from penstock.commands.config import Conf, Config, parse_conf
from penstock.commands.printing import FAILED, Json, answer
from penstock.commands.run import check_settings
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.runtime.doctor.checks import Check, RealTimeQuery


RealTime = Annotated[
    str | None,
    typer.Option(
        "--real-time",
        metavar="N[+SHUFFLES]",
        help="Also check the slots for a query in real-time mode: partitions of its source, and shuffles.",
    ),
]


def doctor(
    config: Config = None, conf: Conf = None, real_time: RealTime = None, as_json: Json = False
) -> None:
    """Check what a job needs of this machine: exit 0, or 1.

    Java, Spark, Python of the executors, cluster, directories, journal, ports, clock and extras: each with a
    tick, or a cross and the way out. Spark is not started.
    """
    from penstock.runtime.doctor.cluster import read_defaults
    from penstock.runtime.doctor.examination import examine

    query = _parse_real_time(real_time) if real_time else None
    known = {**read_defaults(os.environ), **parse_conf(conf or ())}
    settings = check_settings(config, known, {})
    found = list(examine(settings, known, os.environ, query))
    fine = all(one.fine for one in found)
    answer({"ok": fine, "checks": [one.plain() for one in found]}, as_json, render_checks(found))
    if not fine:
        raise typer.Exit(FAILED)


def _parse_real_time(text: str) -> RealTimeQuery:
    from penstock.runtime.doctor.checks import parse_real_time

    try:
        return parse_real_time(text)
    except BadInput as error:
        raise BadInput(f"--real-time: {error}") from None


def render_checks(found: Sequence[Check]) -> Group:
    """Return a line for each check; what is not as it should be has a second one."""
    width = max(len(one.name) for one in found)
    lines = []
    for one in found:
        mark = ("✓ ", "green") if one.fine else ("✗ ", "bold red")
        lines.append(Text.assemble(mark, f"{one.name:{width}}  ", one.found))
        if not one.fine:
            lines.append(Text(f"{'':{width}}    → {one.way_out}", style="bold"))
    return Group(*lines)
