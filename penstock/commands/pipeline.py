"""`penstock pipeline`: run a pipeline from its YAML file, and look after one that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import control
from penstock.commands.printing import Json, answer, reported, say
from penstock.commands.setup import Conf, parse_conf
from penstock.durations import parse_duration
from penstock.errors import BadInput, NotFound

if TYPE_CHECKING:
    from penstock.pipeline.layout import Layout
    from penstock.pipeline.spark_run import PipelineHandle

Named = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The pipeline; may be left out while only one runs.")
]
Config = Annotated[Path | None, typer.Option("--config", help="The settings file.")]

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
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.YAML", help="The pipeline.")],
    policy: Annotated[str | None, typer.Option(help="The policy that sizes the functions.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: as Spark is set up.")] = None,
    seconds: Annotated[str | None, typer.Option("--for", help="Stop after this long.")] = None,
    config: Config = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Run the functions of a pipeline until it is stopped."""
    from penstock.pipeline.yaml_form import load_pipeline
    from penstock.settings import load_settings

    pipeline = load_pipeline(file)
    spark_conf = parse_conf(conf or ())
    chosen = {} if policy is None else {"policy": policy}
    load_settings(config, spark_conf=spark_conf, arguments=chosen)
    patience = _seconds(seconds)
    spark = _session(pipeline.name, master, spark_conf)
    try:
        handle = pipeline.run(spark, policy=policy, settings=load_settings(config, spark_conf=spark_conf))
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
    answer({"pipeline": seen["pipeline"], "functions": joined}, as_json, _shown(layout, seen))


def _shown(layout: Layout, seen: dict[str, Any]) -> Any:
    from penstock.pipeline.drawing import table

    return table(layout, seen["functions"], seen["pipeline"])


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
    try:
        say(f"{handle.name} runs; end it with ctrl-c or `penstock pipeline stop {handle.name}`")
        handle.wait(seconds)
    except KeyboardInterrupt:
        say("stopping")
    finally:
        seen = handle.status()
        handle.stop()
    return seen


def _seconds(given: str | None) -> float | None:
    try:
        return None if given is None else parse_duration(given)
    except ValueError as error:
        raise BadInput(f"--for: {error}") from error


def _whole(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise BadInput(f"{given!r} is not a number of instances, nor `auto`")
    return int(given)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: cannot be written: {error.strerror}") from None
