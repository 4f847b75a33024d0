"""`penstock simulate`: policies side by side in virtual time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.commands.printing import Json, answer, progress, reported, say
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.simulate.experiment import Experiment
    from penstock.simulate.seeds import ManySeeds


def add_to(app: typer.Typer) -> None:
    """Add this command."""
    app.command("simulate")(simulate)


@reported
def simulate(  # noqa: PLR0913, PLR0917 - a command has as many options as its users need
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario file, or the name of a shipped one.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="A policy; give several to compare them.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Where to write the timelines as a page.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise; the same seed gives the same run.")] = 0,
    initial: Annotated[
        list[str] | None,
        typer.Option("--initial", help="Begin an operator with other instances: operator=count."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="So many seeds from --seed on: how figures spread.")] = 1,
    on_spark: Annotated[
        bool, typer.Option("--on-spark", help="Run the seeds in parallel on a local cluster of Spark.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the shipped scenarios.")] = False,
    as_json: Json = False,
) -> None:
    """Run policies side by side on a simulated dataflow, in virtual time."""
    if listed:
        return _list(as_json)
    if scenario is None:
        raise BadInput("simulate: name a scenario file, or one of --list")
    from penstock.simulate.loading import load

    policies = list(dict.fromkeys(policy or ["ds2"]))
    _check(policies)
    experiment = load(scenario).starting_with(parse_initial(initial or ()))
    _warn(policies, experiment)
    if seeds == 1 and not on_spark:
        return _one(experiment, policies, seed, html, as_json)
    if html is not None:
        raise BadInput("--html: shows one seed; leave --seeds and --on-spark out")
    found = _many(experiment, policies, range(seed, seed + seeds), on_spark)
    return answer(found.to_json(), as_json, found.shown())


def _one(experiment: Experiment, policies: list[str], seed: int, html: Path | None, as_json: bool) -> None:
    from penstock.simulate.comparison import EXPLAINED, compare

    comparison = compare(experiment, policies, seed, progress)
    if html is not None:
        from penstock.simulate.page import write_page

        say(f"wrote {write_page(comparison, html)}")
    answer(comparison.to_json(), as_json, Group(comparison.shown(), "", Text(EXPLAINED, "dim")))


def _many(experiment: Experiment, policies: list[str], seeds: range, spark: bool) -> ManySeeds:
    from penstock.simulate.seeds import here, run_seeds

    if not spark:
        progress(f"{len(seeds)} seeds, one after the other")
        return run_seeds(experiment, policies, seeds, here)
    from penstock.bench.spark_cluster import ClusterShape, cluster
    from penstock.simulate.spark_seeds import on_spark

    cores = os.cpu_count() or 1
    progress(f"{len(seeds)} seeds on {cores} slots")
    with cluster(ClusterShape(executors=1, cores=cores, executor_memory_mb=1024, name="seeds")) as session:
        return run_seeds(experiment, policies, seeds, on_spark(session))


def parse_initial(given: Iterable[str]) -> dict[str, int]:
    """Split operator=count pairs."""
    counts: dict[str, int] = {}
    for text in given:
        name, _, count = text.rpartition("=")
        if not name or not count.strip().isdecimal():
            raise BadInput(f"--initial: {text!r} is not operator=count")
        counts[name.strip()] = int(count)
    return counts


def _check(policies: Iterable[str]) -> None:
    from penstock.decide.registry import policy_entry

    for name in policies:
        policy_entry(name)


def _warn(policies: Iterable[str], experiment: Experiment) -> None:
    """Say of which policies nothing is to be expected, since the scenario lacks what they require."""
    from penstock.decide.registry import policy_entry

    for name in policies:
        if lacking := policy_entry(name).lacks(experiment.settings):
            say(f"{name} will decide nothing: {experiment.name} sets no {lacking}")


def _list(as_json: bool) -> None:
    from penstock.simulate.loading import shipped

    scenarios = shipped()
    table = Table("scenario", "what it is", box=None, header_style="dim")
    for name, description in scenarios.items():
        table.add_row(name, Text(description))
    rows = [{"name": name, "description": text} for name, text in scenarios.items()]
    answer({"scenarios": rows}, as_json, table)
