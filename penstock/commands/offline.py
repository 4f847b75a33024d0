"""Commands that need no application: decisions from recorded rates, simulations, and replays of a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from penstock.commands.config import Config
from penstock.commands.printing import Json, answer, progress, say, write_page
from penstock.errors import BadInput, BadMetrics, BadRecording, JournalUnavailable

if TYPE_CHECKING:
    from penstock.decide.offline.decisions import OfflineDecisions, OfflineSettings
    from penstock.decide.offline.recording import RecordedRates, RecordedTopology
    from penstock.decide.policy import Policy
    from penstock.journal.records import ActionRecord, ObservationRecord
    from penstock.settings.model import Settings
    from penstock.simulate.comparison import ManySeeds
    from penstock.simulate.experiment import Experiment
    from penstock.simulate.replay import Replay

OFFLINE_POLICY = "ds2"

Decider = Callable[
    ["RecordedTopology", Sequence["RecordedRates"], Mapping[str, float] | None], "OfflineDecisions"
]
Recorded = tuple[tuple["ObservationRecord", ...], tuple["ActionRecord", ...]]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the timelines to this HTML page.")
]


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
        typer.Option(help="Multiply the answers where a source is behind by more than this; 1 is strictest."),
    ] = None,
    latency_target: Annotated[
        str | None, typer.Option(help="For policies that aim at one, e.g. 2s; outranks the settings.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="The settings file, for policies other than ds2.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Decide offline, once for each epoch of recorded rates."""
    from penstock.decide.offline.decisions import OfflineSettings
    from penstock.decide.offline.recording import parse_rates, parse_source_rates, parse_topology
    from penstock.view.decisions_terminal import render_offline_decisions

    chosen = OfflineSettings(scaling_factor, target_rate_ratio)
    edges = parse_topology(_read_lines(topology), str(topology))
    rows = parse_rates(_read_lines(rates), str(rates), edges)
    given = parse_source_rates(_read_lines(source_rates), str(source_rates), edges) if source_rates else None
    decisions = _choose_decider(policy, chosen, config, latency_target)(edges, rows, given)
    for warning in decisions.warnings:
        say(f"warning: {rates}: {warning}")
    answer(decisions.to_json(), as_json, render_offline_decisions(decisions))


def simulate(  # noqa: PLR0913, PLR0917 - a command has as many options as its users need
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A policy; give several to compare them.  [default: ds2]"),
    ] = None,
    html: Html = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise; the same seed gives the same run.")] = 0,
    initial: Annotated[
        list[str] | None,
        typer.Option(metavar="OPERATOR=COUNT", help="Begin an operator with other instances."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Run this many seeds, from --seed on, and show how figures spread.")
    ] = 1,
    on_spark: Annotated[
        bool, typer.Option("--on-spark", help="Run the seeds in parallel on a local cluster of Spark.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the shipped scenarios.")] = False,
    as_json: Json = False,
) -> None:
    """Compare policies on a simulated dataflow, in virtual time."""
    if listed:
        _list_scenarios(as_json)
        return
    names = list(dict.fromkeys(policy or ["ds2"]))
    experiment = _load_experiment(scenario, names, initial or ())
    if seeds == 1 and not on_spark:
        _simulate_once(experiment, names, seed, html, as_json)
        return
    if html is not None:
        raise BadInput("--html: shows one seed; leave --seeds and --on-spark out")
    _simulate_seeds(experiment, names, range(seed, seed + seeds), on_spark, as_json)


def replay(
    journal: Annotated[
        str, typer.Argument(metavar="JOURNAL", help="The journal whose observations are replayed.")
    ],
    policy: Annotated[str, typer.Option("--policy", metavar="NAME", help="The policy to ask.")] = "ds2",
    app: Annotated[
        str | None, typer.Option("--app", metavar="APP", help="The application, if there are several.")
    ] = None,
    config: Config = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Say how another policy would decide, from a journal."""
    from penstock.journal.ports import hide_password
    from penstock.plugins.finding import find_policy
    from penstock.settings.model import load_settings
    from penstock.view.simulation_terminal import render_replay

    settings = load_settings(config)
    found, observations = replay_journal(journal, app, find_policy(policy).make(settings), settings)
    if html is not None:
        from penstock.view.simulation_page import render_replay_page

        write_page(render_replay_page(found, observations), html)
    answer({"journal": hide_password(journal), **found.to_json()}, as_json, render_replay(found))


def _choose_decider(
    name: str, chosen: OfflineSettings, config: Path | None, latency_target: str | None
) -> Decider:
    """Return how the policy of this name decides from recorded rates; an error says what it lacks."""
    from penstock.decide.offline.decisions import decide_by_policy, decide_offline
    from penstock.plugins.finding import find_policy
    from penstock.settings.model import load_settings

    entry = find_policy(name)
    if entry.recordings_lack:
        lack = f"{name!r} decides by {entry.recordings_lack}, which recorded rates do not tell"
        raise BadInput(f"--policy: {lack}; simulate and replay know them")
    if latency_target is not None and not entry.aims_at_latency:
        raise BadInput(f"--latency-target: {name} aims at no latency on recorded rates; {_list_aiming()} do")
    if entry.name == OFFLINE_POLICY:
        return lambda edges, rows, given: decide_offline(edges, rows, given, chosen)
    if chosen.target_rate_ratio is not None:
        raise BadInput(f"--target-rate-ratio: only {OFFLINE_POLICY} takes it, not {name}")
    arguments = {} if latency_target is None else {"latency_target": latency_target}
    # the headroom is the option's, as in DS2's equations
    headroom = 1 / (1 + chosen.scaling_factor)
    settings = load_settings(config, arguments=arguments).change(utilisation=headroom)
    if lacking := entry.lacks(settings):
        option = f"--{lacking.replace('_', '-')}"
        raise BadInput(f"--policy: {name!r} needs the setting {lacking}: give {option} or --config")
    return lambda edges, rows, given: decide_by_policy(edges, rows, entry.make(settings), given)


def _list_aiming() -> str:
    """List the policies that decide from recorded rates and aim at a latency."""
    from penstock.decide.registry import POLICIES

    entries = POLICIES.values()
    return ", ".join(one.name for one in entries if one.aims_at_latency and not one.recordings_lack)


def _read_lines(path: Path) -> list[str]:
    from penstock.units.texts import read_text

    return read_text(path, BadRecording).splitlines()


def _list_scenarios(as_json: bool) -> None:
    from penstock.simulate.loading import list_shipped
    from penstock.view.terminal import make_table

    scenarios = list_shipped()
    rows = [{"name": name, "description": text} for name, text in scenarios.items()]
    table = make_table(("scenario", "what it is"), [(name, Text(text)) for name, text in scenarios.items()])
    answer({"scenarios": rows}, as_json, table)


def _load_experiment(scenario: str | None, policies: Iterable[str], initial: Iterable[str]) -> Experiment:
    """Load a scenario for these policies; say of which of them nothing is to be expected."""
    from penstock.decide.registry import OPERATORS, SLOTS
    from penstock.plugins.finding import find_policy
    from penstock.simulate.loading import load

    if scenario is None:
        raise BadInput("simulate: name a scenario file, or a shipped scenario: `penstock simulate --list`")
    entries = [find_policy(name) for name in policies]
    experiment = load(scenario).starting_with(parse_initial(initial))
    has = SLOTS if experiment.shares_slots else OPERATORS
    for entry in entries:
        if has not in entry.sizes:
            say(f"{entry.name} will decide nothing: {experiment.name} has {has}")
        elif lacking := entry.lacks(experiment.settings):
            say(f"{entry.name} will decide nothing: {experiment.name} sets no {lacking}")
    return experiment


def parse_initial(given: Iterable[str]) -> dict[str, int]:
    """Split operator=count pairs."""
    counts: dict[str, int] = {}
    for text in given:
        name, _, count = text.rpartition("=")
        if not name or not count.strip().isdecimal():
            raise BadInput(f"--initial: {text!r} is not operator=count")
        counts[name.strip()] = int(count)
    return counts


def _simulate_once(
    experiment: Experiment, policies: list[str], seed: int, html: Path | None, as_json: bool
) -> None:
    from penstock.simulate.comparison import compare
    from penstock.view.simulation_terminal import render_comparison

    comparison = compare(experiment, policies, seed, progress)
    if html is not None:
        from penstock.view.simulation_page import render_comparison_page

        write_page(render_comparison_page(comparison), html)
    answer(comparison.to_json(), as_json, render_comparison(comparison))


def _simulate_seeds(
    experiment: Experiment, policies: list[str], seeds: range, on_spark: bool, as_json: bool
) -> None:
    from penstock.simulate.comparison import here, run_seeds
    from penstock.view.simulation_terminal import render_seeds

    if on_spark:
        found = _run_seeds_on_spark(experiment, policies, seeds)
    else:
        progress(f"{len(seeds)} seeds, one after the other")
        found = run_seeds(experiment, policies, seeds, here)
    answer(found.to_json(), as_json, render_seeds(found))


def _run_seeds_on_spark(experiment: Experiment, policies: list[str], seeds: range) -> ManySeeds:
    from penstock.observe.spark_session import start_session
    from penstock.simulate.comparison import run_seeds
    from penstock.simulate.spark_seeds import on_spark

    progress(f"{len(seeds)} seeds on Spark")
    session = start_session("penstock-seeds", {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    try:
        return run_seeds(experiment, policies, seeds, on_spark(session))
    finally:
        session.stop()


def replay_journal(
    journal: str, app: str | None, policy: Policy, settings: Settings
) -> tuple[Replay, tuple[ObservationRecord, ...]]:
    """Ask the policy about every window of a journal; whatever is wrong with the journal is bad input."""
    from penstock.journal.ports import hide_password
    from penstock.simulate.replay import replay_windows

    place = hide_password(journal)
    try:
        observations, actions = read_journal(journal, app)
        return replay_windows(observations, actions, policy, settings), observations
    except (BadMetrics, JournalUnavailable) as error:
        raise BadInput(f"{place}: cannot be replayed: {error}") from error
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from error


def read_journal(journal: str, app: str | None) -> Recorded:
    """Read the observations and actions of one application; a journal may hold anything."""
    from penstock.journal.former_runs import list_aliases
    from penstock.journal.store import open_journal

    if "://" not in journal and not Path(journal).is_file():
        raise BadInput("no such file")
    try:
        with closing(open_journal(journal, create=False)) as opened:
            observations = opened.observations(None if app is None else list_aliases(opened, app))
            names = sorted({record.application for record in observations})
            actions = opened.actions(names[0]) if len(names) == 1 else ()
    except (LookupError, TypeError, AttributeError) as error:
        raise BadInput(f"cannot be replayed: {error!r}") from error
    if not names:
        raise BadInput("has no observations" if app is None else f"has no observations of {app!r}")
    if len(names) > 1:
        raise BadInput(f"has several applications, name one with --app: {', '.join(names)}")
    return observations, actions
