"""Settings of the run itself: which policy, whether it acts, where things are kept, and for which fleet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from penstock.units.fields import (
    Count,
    Duration,
    Location,
    NamedTexts,
    OptionalCount,
    OptionalLocation,
    OptionalText,
    Ratio,
)
from penstock.units.section import Section

KAFKA_SECURITY = ("security.", "sasl.", "ssl.")


def default_journal(environment: Mapping[str, str], home: Callable[[], Path] = Path.home) -> str:
    """Return the journal's place in the user's state directory, or beside the control sockets."""
    try:
        state = environment.get("XDG_STATE_HOME") or home() / ".local" / "state"
    except RuntimeError:
        # in a container the process may have a number that belongs to no user, and so no home
        return str(Path(default_runtime_directory(environment)) / "journal.db")
    return str(Path(state) / "penstock" / "journal.db")


def default_runtime_directory(environment: Mapping[str, str]) -> str:
    """Return the user's runtime directory, or a directory of this user among the temporary files."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    return str(
        Path(runtime) / "penstock" if runtime else Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    )


class RunSettings(Section):
    """Settings of the whole autopilot."""

    policy: str = Field("ds2", min_length=1, description="The policy that proposes sizes, by name.")
    mode: Literal["act", "observe"] = Field(
        "act",
        description="`act` changes the application; `observe` watches, decides and records, and builds no "
        "actuator.",
    )
    journal: Location = Field(
        default_factory=lambda: default_journal(os.environ),
        description="The journal: the path of a SQLite file, or a database URL.",
        json_schema_extra={
            "default_text": "`$XDG_STATE_HOME/penstock/journal.db`, or `~/.local/state/penstock/journal.db`; "
            "`journal.db` in the default `runtime_directory` for a user without a home"
        },
    )
    retained_observations: Count = Field(
        10000,
        ge=1,
        le=100_000_000,
        description="How many observations the journal keeps for each application.",
    )
    control_socket: bool = Field(
        True, description="Whether the application listens on a Unix socket that only this user can open."
    )
    runtime_directory: Location = Field(
        default_factory=lambda: default_runtime_directory(os.environ),
        description="The directory of the control sockets, and of the locks of supervised jobs.",
        json_schema_extra={
            "default_text": "`$XDG_RUNTIME_DIR/penstock`, or `penstock-<user id>` among the temporary files"
        },
    )
    spark_ui_tab: bool = Field(
        True,
        description="Whether the application's own Spark UI gets a tab, Penstock, and its port "
        "[the metrics](metrics.md); where it can have none, it stays as it is.",
    )

    @property
    def only_observes(self) -> bool:
        """True if nothing is changed."""
        return self.mode == "observe"


class MembershipSettings(Section):
    """The fleet that the application belongs to, and how the two know each other."""

    prefix: ClassVar[str] = "fleet_"
    names: ClassVar[Mapping[str, str]] = {"report_to": "report_to"}

    report_to: OptionalText = Field(
        None,
        description="The fleet that the application belongs to: its directory, or `kafka://HOST:PORT/NAME`. "
        "Windows are published there, and what its controller decides is carried out.",
    )
    key_file: OptionalLocation = Field(
        None,
        description="The file with the fleet's key, or with that of this application alone, as "
        "`penstock fleet key` makes them: windows and decisions are signed with it, and others are not "
        "believed. Nobody but this user may be able to read it. Without a key no decision is taken from "
        "Kafka, and from a directory only what none but this user or root can have written.",
    )
    clock_tolerance: Duration = Field(
        30.0,
        ge=0,
        le=3600,
        description="How far the end of a window may be ahead of the controller's clock; one that is further "
        "ahead goes to the dead letters.",
    )
    changes_per_hour: OptionalCount = Field(
        None,
        ge=1,
        le=1_000_000,
        description="The most changes that the fleet's controller decides on within an hour, over all "
        "applications; what gives more of anything comes first, and the rest is put off. `none`: no limit.",
    )
    kafka_options: NamedTexts = Field(
        {},
        description="Options of security for a fleet that meets in Kafka, such as `security.protocol`, "
        "`sasl.mechanism`, `sasl.username`, `sasl.password` and `ssl.ca.location`, or as Java's client has "
        "them, `sasl.jaas.config` and `ssl.truststore.location`: a mapping, "
        "`security.protocol=SASL_SSL,sasl.mechanism=PLAIN` outside YAML. Secrets among them are not shown.",
        json_schema_extra={"default_text": "none", "secret": True},
    )

    @field_validator("kafka_options")
    @classmethod
    def _check_kafka_options(cls, written: dict[str, str]) -> dict[str, str]:
        options = {name.removeprefix("kafka."): text for name, text in written.items()}
        for name in options:
            if not name.startswith(KAFKA_SECURITY):
                raise ValueError(f"{name} is none of {', '.join(KAFKA_SECURITY)}, the options of security")
        return options


class FuseSettings(Section):
    """Whether neighbouring functions of a pipeline run as one query."""

    names: ClassVar[Mapping[str, str]] = {"mode": "fuse", "above": "fuse_above"}

    mode: Literal["auto", "never", "always"] = Field(
        "never",
        description="Whether neighbouring functions of a pipeline run as one query: `auto` where the topic "
        "between them costs too much, `never`, or `always` where they can. The topic is then not written.",
    )
    above: Ratio = Field(
        0.2,
        ge=0,
        le=1000,
        description="The share of the useful time of two functions above which the topic between them costs "
        "too much; they part again at half of it.",
    )
