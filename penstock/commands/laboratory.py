"""The laboratory's commands, where it is installed: `penstock demo`, `bench`, `evidence`, `workload`."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from penstock.commands.printing import Json, report_errors
from penstock.errors import BadInput

GROUP = "penstock.commands"
COMMANDS = {
    "bench": "Measure one claim, its sides against each other in one run.",
    "workload": "Run one workload alone: what it sustains, and its latency.",
    "evidence": "Run the papers' headline results here, beside the published figures.",
    "demo": "Show the autopilot at work on a local cluster of executor processes.",
}


def add_to(app: typer.Typer) -> None:
    """Add the commands of the laboratory, or in their place commands that say how to get it."""
    for found in entry_points(group=GROUP, name="laboratory"):
        found.load()(app)
        return
    for name, summary in COMMANDS.items():
        app.command(
            name,
            help=f"{summary} Needs the laboratory (penstock-lab).",
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )(report_errors(_refuse))


def _refuse(context: typer.Context, as_json: Json = False) -> None:
    raise BadInput(
        f"{context.info_name}: this command needs the laboratory (penstock-lab), which is not installed: "
        "in a clone of Penstock, run `pip install ./penstock_lab`"
    )
