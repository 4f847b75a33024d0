"""Words of a command line, parsed by Penstock's own commands and read as Spark's own would be."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
import typer

from penstock.cli import app
from penstock.commands.config import parse_conf
from penstock.settings.model import Settings, load_settings

JARS = Path(pyspark.__file__).parent / "jars"
SUBMIT_OPTIONS = ("spark-launcher_*.jar", "org/apache/spark/launcher/SparkSubmitOptionParser.class")
SWITCHES = {"--verbose", "--supervise", "--load-spark-defaults"}


def parse_command(words: Sequence[str]) -> dict[str, Any]:
    """What the command named first gets of the words after it; fails at an unknown or a missing one."""
    command: Any = typer.main.get_command(app)
    name, *rest = "penstock", *words
    while hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    return dict(command.make_context(name, rest).params)


def settings_of(conf: dict[str, str]) -> Settings:
    """Penstock's settings among these of Spark, checked as at the start of a job."""
    return load_settings(None, {}, conf)


@dataclass
class Submission:
    """What a line with spark-submit asks for."""

    options: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    script: str = ""
    arguments: list[str] = field(default_factory=list)


def read_submission(words: Sequence[str]) -> Submission:
    """Read the words after `spark-submit`; each option must be one of the installed Spark's."""
    found, rest = Submission(), list(words)
    while rest and rest[0].startswith("--"):
        option = rest.pop(0)
        assert option in submit_options(), f"spark-submit has no {option}"
        if option in SWITCHES:
            continue
        value = rest.pop(0)
        if option == "--conf":
            found.conf |= parse_conf([value])
        else:
            found.options[option] = value
    found.script, *found.arguments = rest
    return found


@cache
def submit_options() -> frozenset[str]:
    """The options of spark-submit, as they stand in the class that parses them."""
    return frozenset(name for name in words_of(*SUBMIT_OPTIONS) if name.startswith("--"))


@cache
def words_of(jar: str, *classes: str) -> frozenset[str]:
    """The words without a space that stand in classes of one of Spark's jars."""
    (path,) = JARS.glob(jar)
    with zipfile.ZipFile(path) as opened:
        code = b"\n".join(opened.read(name) for name in opened.namelist() if name.startswith(classes))
    return frozenset(word.decode() for word in re.findall(rb"[\w.-]+", code, re.ASCII))
