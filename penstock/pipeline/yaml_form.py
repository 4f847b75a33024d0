"""A pipeline written as YAML, its functions named as `module:function`; mistakes name the file and the key.

name: thumbnails
at: {files: topics}
topics:
  images: {schema: "number bigint, pixels binary"}
functions:
  resize: {call: "images:resize", reads: images, writes: small, parallelism: [1, 15],
           schema: "number bigint, pixels binary"}
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import BadInput
from penstock.pipeline.definition import Pipeline
from penstock.pipeline.topics import Location, files, kafka, stream
from penstock.units.texts import parse_yaml, read_text

_TOP = ("name", "at", "topics", "functions")
_TOPIC = ("schema", "at", "kept")
_FUNCTION = (
    "call", "reads", "writes", "parallelism", "latency_target", "schema", "takes", "key", "state", "order",
    "timeout", "fuse",
)  # fmt: skip


def load_pipeline(path: Path) -> Pipeline:
    """Read and check a pipeline; modules are looked for beside the file, too."""
    written = _mapping(str(path), parse_yaml(str(path), read_text(path))[0], _TOP)
    place = _place(f"{path}: at", written["at"], path.parent) if "at" in written else None
    try:
        pipeline = Pipeline(str(written.get("name", path.stem)), place)
        _add_topics(pipeline, f"{path}: topics", written.get("topics") or {}, path.parent)
        _add_functions(pipeline, f"{path}: functions", written.get("functions") or {}, path.parent)
        pipeline.check()
    except BadInput as error:
        said = str(error)
        raise BadInput(said if said.startswith(str(path)) else f"{path}: {said}") from error
    return pipeline


def _mapping(place: str, value: Any, known: tuple[str, ...] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{place}: a mapping is needed, not {value!r}")
    for key in value:
        if not isinstance(key, str) or (known is not None and key not in known):
            hint = f"; known: {', '.join(known)}" if known else ""
            raise BadInput(f"{place}: unknown key {key!r}{hint}")
    return value


def _place(place: str, value: Any, beside: Path) -> Location:
    """Return one of `files: ROOT`, `kafka: SERVERS`, `stream: FORMAT`, each with its own options."""
    written = dict(_mapping(place, value))
    kinds = [kind for kind in ("files", "kafka", "stream") if kind in written]
    if len(kinds) != 1:
        raise BadInput(f"{place}: one of files, kafka and stream is needed")
    main = str(written.pop(kinds[0]))
    try:
        if kinds[0] == "files":
            return files(main if "://" in main else str(beside.resolve() / main), **written)
        return kafka(main, **written) if kinds[0] == "kafka" else stream(main, **written)
    except TypeError:
        raise BadInput(f"{place}: unknown option in {', '.join(written)} of {kinds[0]}") from None
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None


def _add_topics(pipeline: Pipeline, place: str, value: Any, beside: Path) -> None:
    for name, one in _mapping(place, value).items():
        here = f"{place}.{name}"
        fields = _mapping(here, one or {}, _TOPIC)
        at = _place(f"{here}.at", fields["at"], beside) if "at" in fields else None
        pipeline.topic(name, fields.get("schema"), at, fields.get("kept", True))


def _add_functions(pipeline: Pipeline, place: str, value: Any, beside: Path) -> None:
    for name, one in _mapping(place, value).items():
        here = f"{place}.{name}"
        fields = dict(_mapping(here, one, _FUNCTION))
        for needed in ("call", "reads"):
            if needed not in fields:
                raise BadInput(f"{here}: the key {needed} is missing")
        call = _import_function(f"{here}.call", fields.pop("call"), beside)
        try:
            pipeline.add(call, name=name, **fields)
        except BadInput as error:
            raise BadInput(f"{here}: {error}") from error


def _import_function(place: str, written: Any, beside: Path) -> Callable[..., Any]:
    module_name, _, name = str(written).partition(":")
    if not module_name or not name:
        raise BadInput(f"{place}: {written!r} is not of the form module:function")
    if str(beside.resolve()) not in sys.path:
        sys.path.insert(0, str(beside.resolve()))
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except ModuleNotFoundError as error:
        raise BadInput(f"{place}: there is no module {error.name!r}") from None
    except Exception as error:
        raise BadInput(f"{place}: importing {module_name!r} failed: {error!r}") from error
    if not callable(found):
        raise BadInput(f"{place}: module {module_name!r} has no function {name!r}")
    return found  # type: ignore[no-any-return]
