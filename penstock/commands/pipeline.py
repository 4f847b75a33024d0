"""`penstock pipeline`: run a pipeline from its YAML file, and look after one that runs."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import control
from penstock.commands.printing import Json, answer, reported, say
from penstock.commands.setup import Conf, parse_conf
from penstock.durations import parse_duration
from penstock.errors import BadInput, NotFound

if TYPE_CHECKING:
    from penstock.pipeline.handle import PipelineHandle
    from penstock.pipeline.layout import Layout

Named = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The pipeline; may be left out while only one runs.")
]
Config = Annotated[Path | None, typer.Option("--config", help="The settings file.")]

_ATTENTION_SECONDS = 0.5
_WIDE = 100
"""Columns of a terminal from which on a table has room for figures and topics."""

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    group.command("run")(run)
    group.command("status")(status)
    group.command("scale")(scale)
    group.command("stop")(stop)
    group.command("draw")(draw)
    app.add_typer(group, name="pipeline", help="Functions joined by topics: run, status, scale, stop, draw.")


@reported
def run(  # noqa: PLR0913, PLR0917
    file: Annotated[Path, typer.Argument(metavar="FILE.YAML", help="The pipeline.")],
    policy: Annotated[str | None, typer.Option(help="The policy that sizes the functions.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: as Spark is set up.")] = None,
    seconds: Annotated[str | None, typer.Option("--for", help="Stop after this long.")] = None,
    checkpoints: Annotated[
        str | None, typer.Option(help="Where checkpoints are kept; default: beside file topics.")
    ] = None,
    trigger: Annotated[str, typer.Option(help="How often each function looks for records.")] = "1s",
    executors: Annotated[
        str | None, typer.Option(metavar="LEAST:MOST", help="Let executors follow the sum of instances.")
    ] = None,
    lease: Annotated[
        str, typer.Option(help="A process that leads and gives no sign for so long is replaced.")
    ] = "8s",
    config: Config = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Run the functions of a pipeline until it is stopped; while another process does, stand by."""
    from penstock.decide.registry import policy_entry
    from penstock.pipeline.yaml_form import load_pipeline
    from penstock.settings import load_settings

    # complain before Spark is up
    pipeline = load_pipeline(file)
    spark_conf = parse_conf(conf or ())
    chosen = {} if policy is None else {"policy": policy}
    policy_entry(load_settings(config, spark_conf=spark_conf, arguments=chosen).policy)
    options: dict[str, Any] = {"checkpoints": checkpoints, "trigger": trigger, "lease": lease}
    options["executors"] = _limits(executors)
    patience, _, _ = _seconds("--for", seconds), _seconds("--trigger", trigger), _seconds("--lease", lease)
    spark = _session(pipeline.name, master, spark_conf)
    try:
        settings = load_settings(config, spark_conf=spark_conf)
        handle = pipeline.run(spark, policy=policy, settings=settings, **options)
        seen = _attended(handle, patience)
    finally:
        spark.stop()
    answer(seen, as_json, _shown(pipeline.layout(), seen))


@reported
def status(name: Named = None, config: Config = None, as_json: Json = False) -> None:
    """Show every function: instances, rates, backlog, dead letters."""
    seen = _running(name, config).ask("status")["status"]
    answer(seen, as_json, _shown(_layout_of(seen), seen))


@reported
def scale(
    function: Annotated[str, typer.Argument(help="The function.")],
    parallelism: Annotated[str, typer.Argument(help="Instances from its next batch on, or `auto`.")],
    name: Annotated[str | None, typer.Option("--pipeline", help="The pipeline, where several run.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Set a function's instances by hand and keep them there; `auto` gives it back to the policy."""
    size = None if parallelism == "auto" else _whole(parallelism)
    running = _running(name, config)
    result = running.ask("scale", function=function, parallelism=size)
    said = {"pipeline": running.name, "function": function, "parallelism": result["parallelism"]}
    pinned = "" if size is None else ", pinned"
    answer({**said, "pinned": size is not None}, as_json, f"{function}: {result['parallelism']}{pinned}")


@reported
def stop(name: Named = None, config: Config = None, as_json: Json = False) -> None:
    """Stop a pipeline; its next run goes on from the checkpoints."""
    running = _running(name, config)
    running.ask("stop")
    answer({"pipeline": running.name, "stopping": True}, as_json, f"{running.name} is stopping")


@reported
def draw(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE.YAML", help="A running pipeline, or a file.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Also write the drawing to this file.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Draw the graph, with rates, backlog and instances where it runs."""
    from penstock.pipeline.drawing import svg as svg_of
    from penstock.pipeline.yaml_form import load_pipeline

    seen: dict[str, Any]
    if pipeline is not None and pipeline.endswith((".yaml", ".yml")):
        defined = load_pipeline(Path(pipeline))
        layout, seen = defined.layout(), {"pipeline": defined.name, "functions": {}}
    else:
        seen = _running(pipeline, config).ask("status")["status"]
        layout = _layout_of(seen)
    if svg is not None:
        _write(svg, svg_of(layout, seen["functions"], seen["pipeline"]))
        say(f"wrote {svg}")
    joined = {
        name: {"reads": list(layout.reads[name]), "writes": layout.writes[name]} for name in layout.functions
    }
    answer({"pipeline": seen["pipeline"], "functions": joined}, as_json, _drawn(layout, seen))


def _drawn(layout: Layout, seen: dict[str, Any]) -> Any:
    from penstock.pipeline.drawing import complaints
    from penstock.pipeline.graph_text import tree

    wrong = complaints(seen["functions"])
    if wrong is not None:
        wrong.stylize("red")
    return _told(seen, tree(layout, seen["functions"], seen["pipeline"]), *([wrong] if wrong else []))


def _shown(layout: Layout, seen: dict[str, Any]) -> Any:
    from rich.console import Console

    from penstock.pipeline.drawing import table

    narrow = Console().width < _WIDE
    return _told(seen, table(layout, seen["functions"], seen["pipeline"], narrow))


def _told(seen: dict[str, Any], *parts: Any) -> Any:
    """What is shown, and below it what the controller said last."""
    from rich.console import Group
    from rich.text import Text

    from penstock.pipeline.drawing import last_decision

    said = last_decision(seen)
    return Group(*parts, *([Text(said, style="dim")] if said is not None else []))


def _layout_of(seen: dict[str, Any]) -> Layout:
    from penstock.pipeline.layout import laid_out

    return laid_out(
        {name: (tuple(one["reads"]), one["writes"]) for name, one in seen["functions"].items()}, frozenset()
    )


def _running(name: str | None, config: Path | None) -> control.Running:
    from penstock.settings import load_settings

    directory = Path(load_settings(config).runtime_directory) / "pipelines"
    try:
        return control.find(directory, name)
    except NotFound:
        raise NotFound("no pipeline is running") from None


def _session(name: str, master: str | None, conf: dict[str, str]) -> Any:
    from penstock.pipeline.spark_session import session

    return session(name, master, conf)


def _attended(handle: PipelineHandle, seconds: float | None) -> dict[str, Any]:
    """Wait for the end; whatever it is, the queries are stopped."""
    deadline = None if seconds is None else time.monotonic() + seconds
    led: bool | None = None
    # whoever is told to end must stop at a batch boundary, and let another lead at once
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while not handle.wait(_ATTENTION_SECONDS) and (deadline is None or time.monotonic() < deadline):
            if handle.leads is not led and not handle.stopping:
                led = handle.leads
                say(_role(handle))
    except KeyboardInterrupt:
        say("stopping")
    finally:
        signal.signal(signal.SIGTERM, before)
        seen = handle.status()
        handle.stop()
    return seen


def _role(handle: PipelineHandle) -> str:
    if handle.leads:
        return f"{handle.name} runs; end it with ctrl-c or `penstock pipeline stop {handle.name}`"
    return f"another process runs {handle.name}; standing by, and taking over when it is gone"


def _limits(given: str | None) -> bool | tuple[int, int]:
    if given is None:
        return False
    least, _, most = given.partition(":")
    if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
        raise BadInput(f"--executors: {given!r} is not LEAST:MOST, such as 1:8")
    return int(least), int(most)


def _seconds(option: str, given: str | None) -> float | None:
    try:
        return None if given is None else parse_duration(given)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error


def _whole(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise BadInput(f"{given!r} is not a number of instances, nor `auto`")
    return int(given)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: cannot be written: {error.strerror}") from None
