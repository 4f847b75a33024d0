"""`penstock decide` and `penstock policies`: decisions without an application."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import Json, answer, reported, say
from penstock.errors import BadInput, BadRecording

if TYPE_CHECKING:
    from penstock.decide.offline import OfflineDecisions
    from penstock.decide.registry import PolicyEntry

OFFLINE_POLICY = "ds2"


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("decide")(decide)
    app.command("policies")(policies)


@reported
def decide(
    topology: Annotated[Path, typer.Option(help="CSV file of edges, one a line.")],
    rates: Annotated[Path, typer.Option(help="CSV file of rates, one instance and epoch a line.")],
    policy: Annotated[str, typer.Option(help="The policy that decides.")] = OFFLINE_POLICY,
    source_rates: Annotated[
        Path | None, typer.Option(help="CSV file of source rates per instance; -1 means the observed one.")
    ] = None,
    scaling_factor: Annotated[
        float, typer.Option(help="Headroom F: the answer is the exact need times 1+F, rounded up.")
    ] = 0.0,
    target_rate_ratio: Annotated[
        float | None,
        typer.Option(help="Multiply the answers where a source falls behind by more than this ratio."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Decide once for each epoch of recorded rates."""
    from penstock.decide.offline import OfflineSettings, decide_offline
    from penstock.decide.recording import parse_rates, parse_source_rates, parse_topology
    from penstock.decide.registry import policy_entry

    if policy_entry(policy).name != OFFLINE_POLICY:
        raise BadInput(f"--policy: {policy!r} cannot decide from recorded rates; {OFFLINE_POLICY!r} can")
    settings = OfflineSettings(scaling_factor, target_rate_ratio)
    edges = parse_topology(_lines(topology), str(topology))
    rows = parse_rates(_lines(rates), str(rates), edges)
    given = parse_source_rates(_lines(source_rates), str(source_rates), edges) if source_rates else None
    decisions = decide_offline(edges, rows, given, settings)
    for warning in decisions.warnings:
        say(f"warning: {rates}: {warning}")
    answer(decisions.to_json(), as_json, _table(decisions))


@reported
def policies(as_json: Json = False) -> None:
    """List the policies: what each needs, what it promises, and when to choose it."""
    from penstock.decide.registry import POLICIES

    entries = sorted(POLICIES.values(), key=lambda entry: entry.baseline)
    told = ("name", "summary", "needs", "promises", "choose_when", "baseline")
    listed = [{key: getattr(entry, key) for key in told} for entry in entries]
    answer({"policies": listed}, as_json, _policy_table(entries))


def _policy_table(entries: Sequence[PolicyEntry]) -> Table:
    """One block of lines a policy: four columns of sentences would be too narrow to read."""
    table = Table(box=None, show_header=False, padding=(0, 2, 1, 0))
    for entry in entries:
        told = Text("baseline: " if entry.baseline else "", style="dim").append(
            entry.summary, style="not dim"
        )
        for label, text in (
            ("needs", entry.needs),
            ("promises", entry.promises),
            ("when", entry.choose_when),
        ):
            told.append(f"\n{label:<9}", style="dim").append(text, style="not dim")
        table.add_row(Text(entry.name, style="bold"), told)
    return table


def _lines(path: Path) -> list[str]:
    try:
        # a byte order mark in front of the first column is the spreadsheet's, not the user's
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadRecording(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise BadRecording(f"{path}: cannot be read: {error.strerror}") from None


def _table(decisions: OfflineDecisions) -> Table:
    table = Table(box=None, header_style="dim")
    for name, justify in (
        ("epoch", "right"),
        ("operator", "left"),
        ("exact", "right"),
        ("parallelism", "right"),
    ):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for number, epoch in enumerate(decisions.epochs, start=1):
        if epoch.not_ready is not None:
            table.add_row(str(number), Text(f"not ready: {epoch.not_ready}", style="yellow"))
        for operator, wanted in epoch.parallelism.items():
            table.add_row(str(number), Text(operator), f"{epoch.exact[operator]:.4f}", str(wanted))
    return table
