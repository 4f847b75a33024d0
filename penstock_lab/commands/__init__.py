"""The commands of the laboratory: `penstock bench`, `demo`, `evidence` and `workload`."""

from __future__ import annotations

import typer

from penstock_lab.commands import claims, workload


def add_to(app: typer.Typer) -> None:
    """Add the laboratory's commands to Penstock's own."""
    for group in (claims, workload):
        group.add_to(app)
