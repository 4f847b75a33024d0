"""`penstock pipeline`: run a pipeline from its YAML file, and look after one that runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from penstock.commands.config import Conf, Config, parse_conf, parse_seconds
from penstock.commands.ending import interruptible
from penstock.commands.live import locate_sockets
from penstock.commands.printing import Json, answer, say, terminal, write_output
from penstock.errors import BadInput, NotFound
from penstock.runtime import control

if TYPE_CHECKING:
    from penstock.pipeline.handle import PipelineHandle
    from penstock.pipeline.topics import Layout

PipelineName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The pipeline; may be left out while only one runs.")
]
Lease = Annotated[str, typer.Option(help="A process that leads and gives no sign for so long is replaced.")]

_ATTENTION_SECONDS = 0.5
_WIDE = 100
"""Columns that a terminal needs to show figures and topics side by side."""


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
    lease: Lease = "8s",
    config: Config = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Run the functions of a pipeline until it is stopped.

    While another process runs the same pipeline, this one stands by.
    """
    from penstock.pipeline.yaml_form import load_pipeline

    # complain before Spark is up
    pipeline, spark_conf = load_pipeline(file), parse_conf(conf or ())
    _check_policy(policy, config, spark_conf)
    parse_seconds("--trigger", trigger), parse_seconds("--lease", lease)
    options = {"policy": policy, "checkpoints": checkpoints, "trigger": trigger, "lease": lease}
    limits, patience = _parse_limits(executors), None if seconds is None else parse_seconds("--for", seconds)
    from penstock.pipeline.spark_run import start_pipeline_session
    from penstock.settings.model import load_settings

    spark = start_pipeline_session(pipeline.name, master, spark_conf)
    try:
        settings = load_settings(config, spark_conf=spark_conf)
        handle = pipeline.run(spark, settings=settings, executors=limits, **options)
        seen = attend_pipeline(handle, patience)
    finally:
        spark.stop()
    answer(seen, as_json, _show_functions(pipeline.layout(), seen))


def status(name: PipelineName = None, config: Config = None, as_json: Json = False) -> None:
    """Show every function: instances, rates, backlog, dead letters."""
    from penstock.pipeline.topics import lay_out_status

    seen = _find_pipeline(name, config).ask("status")["status"]
    answer(seen, as_json, _show_functions(lay_out_status(seen["functions"]), seen))


def scale(
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="The function.")],
    parallelism: Annotated[
        str, typer.Argument(metavar="PARALLELISM", help="Instances from its next batch on, or `auto`.")
    ],
    name: Annotated[str | None, typer.Option("--pipeline", help="The pipeline, where several run.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Set a function's instances by hand and keep them there.

    `auto` gives the function back to the policy.
    """
    pinned = parallelism != "auto"
    if pinned and (not parallelism.isdecimal() or int(parallelism) < 1):
        raise BadInput(f"PARALLELISM: {parallelism!r} is neither a number of instances from 1 on nor `auto`")
    running = _find_pipeline(name, config)
    size = running.ask("scale", function=function, parallelism=int(parallelism) if pinned else None)
    result = {"pipeline": running.name, "function": function, "parallelism": size["parallelism"]}
    said = f"{function}: {size['parallelism']}{', pinned' if pinned else ''}"
    answer({**result, "pinned": pinned}, as_json, said)


def stop(name: PipelineName = None, config: Config = None, as_json: Json = False) -> None:
    """Stop a pipeline; its next run goes on from the checkpoints."""
    running = _find_pipeline(name, config)
    running.ask("stop")
    answer({"pipeline": running.name, "stopping": True}, as_json, f"{running.name} is stopping")


def draw(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="NAME|FILE.YAML", help="A running pipeline, or a file.")
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Also write the drawing to this file.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Draw the graph, with rates, backlog and instances where it runs."""
    from penstock.pipeline.topics import lay_out_status
    from penstock.pipeline.yaml_form import load_pipeline
    from penstock.view.pipeline import draw_svg

    seen: dict[str, Any]
    if pipeline is not None and pipeline.endswith((".yaml", ".yml")):
        defined = load_pipeline(Path(pipeline))
        layout, seen = defined.layout(), {"pipeline": defined.name, "functions": {}}
    else:
        seen = _find_pipeline(pipeline, config).ask("status")["status"]
        layout = lay_out_status(seen["functions"])
    if svg is not None:
        write_output(svg, draw_svg(layout, seen["functions"], seen["pipeline"]).encode())
        say(f"wrote {svg}")
    joined = {
        name: {"reads": list(layout.reads[name]), "writes": layout.writes[name]} for name in layout.functions
    }
    answer({"pipeline": seen["pipeline"], "functions": joined}, as_json, _show_graph(layout, seen))


def _show_graph(layout: Layout, seen: dict[str, Any]) -> Group:
    from penstock.view.pipeline import list_complaints, render_graph

    wrong = list_complaints(seen["functions"])
    if wrong is not None:
        wrong.stylize("red")
    graph = render_graph(layout, seen["functions"], seen["pipeline"])
    return _add_decision(seen, graph, *([wrong] if wrong else []))


def _show_functions(layout: Layout, seen: dict[str, Any]) -> Group:
    from penstock.view.pipeline import render_functions

    narrow = terminal().width < _WIDE
    return _add_decision(seen, render_functions(layout, seen["functions"], seen["pipeline"], narrow))


def _add_decision(seen: dict[str, Any], *parts: Any) -> Group:
    """Put what the controller said last below what is shown."""
    from penstock.view.pipeline import describe_last_decision

    said = describe_last_decision(seen)
    return Group(*parts, *([Text(said, style="dim")] if said is not None else []))


def _find_pipeline(name: str | None, config: Path | None) -> control.Running:
    directory = locate_sockets(config) / control.PIPELINES
    try:
        return control.find_running(directory, name)
    except NotFound:
        hint = "start one with `penstock pipeline run FILE.YAML`"
        raise NotFound(f"no pipeline is running (looked in {directory}): {hint}") from None
    except BadInput as error:
        raise BadInput(str(error).replace("application", "pipeline")) from None


def _check_policy(policy: str | None, config: Path | None, spark_conf: dict[str, str]) -> None:
    from penstock.plugins.finding import find_policy
    from penstock.settings.model import load_settings

    chosen = {} if policy is None else {"policy": policy}
    name = load_settings(config, spark_conf=spark_conf, arguments=chosen).run.policy
    find_policy(name).check_place("pipeline run")


def attend_pipeline(handle: PipelineHandle, seconds: float | None) -> dict[str, Any]:
    """Wait for the end; whatever it is, the queries are stopped."""
    deadline = None if seconds is None else time.monotonic() + seconds
    led: bool | None = None
    # whoever is told to end must stop at a batch boundary, and let another lead at once
    try:
        with interruptible():
            while not handle.wait(_ATTENTION_SECONDS) and (deadline is None or time.monotonic() < deadline):
                if handle.leads is not led and not handle.stopping:
                    led = handle.leads
                    say(_describe_role(handle))
    except KeyboardInterrupt:
        say("stopping")
    finally:
        seen = handle.status()
        handle.stop()
    return seen


def _describe_role(handle: PipelineHandle) -> str:
    if handle.leads:
        return f"{handle.name} runs; end it with ctrl-c or `penstock pipeline stop {handle.name}`"
    return f"another process runs {handle.name}; standing by, and taking over when it is gone"


def _parse_limits(given: str | None) -> bool | tuple[int, int]:
    if given is None:
        return False
    least, _, most = given.partition(":")
    if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
        raise BadInput(f"--executors: {given!r} is not LEAST:MOST, such as 1:8")
    return int(least), int(most)
