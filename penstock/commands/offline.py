"""`penstock decide` and `penstock policies`: decisions without an application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import Json, answer, reported, say
from penstock.errors import BadInput, BadRecording

if TYPE_CHECKING:
    from penstock.decide.offline import OfflineDecisions, OfflineSettings
    from penstock.decide.recording import RecordedRates, RecordedTopology
    from penstock.decide.registry import PolicyEntry
    from penstock.settings import Settings

    Rows = Sequence[RecordedRates]

OFFLINE_POLICY = "ds2"


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("decide")(decide)
    app.command("policies")(policies)


@reported
def decide(  # noqa: PLR0913, PLR0917 - a command has as many options as its users need
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
    latency_target: Annotated[
        str | None, typer.Option(help="For policies that aim at one, e.g. 2s; outranks the settings.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="The settings file, for policies other than ds2.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Decide once for each epoch of recorded rates."""
    from penstock.decide.offline import OfflineSettings
    from penstock.decide.recording import parse_rates, parse_source_rates, parse_topology

    chosen = OfflineSettings(scaling_factor, target_rate_ratio)
    edges = parse_topology(_lines(topology), str(topology))
    rows = parse_rates(_lines(rates), str(rates), edges)
    given = parse_source_rates(_lines(source_rates), str(source_rates), edges) if source_rates else None
    decide_all = _deciding(policy, chosen, config, latency_target)
    decisions = decide_all(edges, rows, given)
    for warning in decisions.warnings:
        say(f"warning: {rates}: {warning}")
    answer(decisions.to_json(), as_json, _table(decisions))


def _deciding(
    name: str, chosen: OfflineSettings, config: Path | None, latency_target: str | None
) -> Callable[[RecordedTopology, Rows, Mapping[str, float] | None], OfflineDecisions]:
    """How the policy of this name decides from recorded rates; an error says what it would need besides."""
    from penstock.decide.offline import decide_offline
    from penstock.decide.offline_policies import decide_by_policy
    from penstock.decide.registry import policy_entry

    entry = policy_entry(name)
    if entry.recordings_lack:
        lack = f"{name!r} decides by {entry.recordings_lack}, which recorded rates do not tell"
        raise BadInput(f"--policy: {lack}; simulate and replay know them")
    if entry.name == OFFLINE_POLICY:
        return lambda edges, rows, given: decide_offline(edges, rows, given, chosen)
    if chosen.target_rate_ratio is not None:
        raise BadInput(f"--target-rate-ratio: only {OFFLINE_POLICY} takes it, not {name}")
    settings = _settings(config, latency_target, chosen.scaling_factor)
    if lacking := entry.lacks(settings):
        option = f"--{lacking.replace('_', '-')}"
        raise BadInput(f"--policy: {name!r} needs the setting {lacking}: give {option} or --config")
    return lambda edges, rows, given: decide_by_policy(edges, rows, entry.make(settings), given)


def _settings(config: Path | None, latency_target: str | None, scaling_factor: float) -> Settings:
    """As for `run`, but that the headroom is the option's, as it is for DS2's equations."""
    from penstock.settings import load_settings

    arguments = {} if latency_target is None else {"latency_target": latency_target}
    return load_settings(config, arguments=arguments).model_copy(
        update={"utilisation": 1 / (1 + scaling_factor)}
    )


@reported
def policies(as_json: Json = False) -> None:
    """List the policies: what each needs, what it promises, and when to choose it."""
    from penstock.decide.registry import POLICIES

    entries = sorted(POLICIES.values(), key=lambda entry: entry.baseline)
    told = ("name", "summary", "needs", "promises", "choose_when", "usable_in", "baseline")
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
            ("in", ", ".join(entry.usable_in)),
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


def _table(decisions: OfflineDecisions) -> Group:
    reasons: list[Text] = []
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
            exact = f"{epoch.exact[operator]:.4f}" if operator in epoch.exact else "–"
            table.add_row(str(number), Text(operator), exact, str(wanted))
        if epoch.reason is not None:
            reasons.append(Text.assemble((f"{number:>6}  ", "dim"), epoch.reason))
    return Group(table, "", *reasons) if reasons else Group(table)
