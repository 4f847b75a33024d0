"""Typed settings with units and ranges; the only reader of files and environment.

A setting has one name everywhere: `policy_interval` in the YAML file, `PENSTOCK_POLICY_INTERVAL` in the
environment, `spark.penstock.policy_interval` (or `spark.penstock.policy.interval`) in Spark's configuration;
each of these outranks the one before it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.manager_settings import ManagerSettings, Statistic
from penstock.errors import BadSettings
from penstock.policy_settings import PolicySettings
from penstock.settings_sources import Given, from_arguments, from_environment, from_spark, from_yaml
from penstock.settings_types import Count, Duration, Location, Names, OptionalDuration, OrOff, Ratio
from penstock.sizing_settings import SizingSettings

CONFIG_VARIABLE = "PENSTOCK_CONFIG"
"""Names the settings file where none is given; not a setting itself."""


def default_journal(environment: Mapping[str, str], home: Callable[[], Path] = Path.home) -> str:
    """The journal's place in the user's state directory, or beside the control sockets."""
    try:
        state = environment.get("XDG_STATE_HOME") or home() / ".local" / "state"
    except RuntimeError:
        # in a container the process may have a number that belongs to no user, and so no home
        return str(Path(default_runtime_directory(environment)) / "journal.db")
    return str(Path(state) / "penstock" / "journal.db")


def default_runtime_directory(environment: Mapping[str, str]) -> str:
    """Where control sockets go: the user's runtime directory, or an own one among the temporary files."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    return str(
        Path(runtime) / "penstock" if runtime else Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}"
    )


class Settings(PolicySettings, SizingSettings):
    """All that can be set; frozen, and unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    policy: str = Field("ds2", min_length=1, description="The policy that proposes sizes, by name.")
    mode: Literal["act", "observe"] = Field(
        "act",
        description="`act` changes the application; `observe` watches, decides and records, and builds no "
        "actuator.",
    )
    policy_interval: Duration = Field(
        10.0,
        ge=0.1,
        le=86400,
        description="How often metrics are gathered and the policy is asked. A longer interval gives "
        "steadier rates and a slower reaction; it should hold at least one batch.",
    )
    warm_up_intervals: Count = Field(
        1,
        ge=0,
        le=1000,
        description="Policy intervals ignored after the start and after each action, while rates are "
        "unstable.",
    )
    activation_intervals: Count = Field(
        2,
        ge=1,
        le=100,
        description="Consecutive policy decisions that are considered together before acting.",
    )
    activation_statistic: Literal["median", "maximum"] = Field(
        "median",
        description="What is taken of those decisions, for each scaled unit. Of two middle sizes the "
        "median is the larger, unless only that one asks for growth: then nothing grows.",
    )
    target_rate_ratio: Ratio = Field(
        1.5,
        ge=1,
        le=100,
        description="When the policy sees no need to grow, and yet the offered rate exceeds the observed "
        "one by more than this factor over all considered intervals while the backlog grows, "
        "what is held is multiplied by offered/observed: it makes up for costs that the "
        "measurements miss.",
    )
    ignore_changes_below: Count = Field(
        1,
        ge=1,
        le=1000,
        description="Changes by fewer executors than this are ignored as noise; 1 ignores none. Growth is "
        "never ignored while the backlog grows.",
    )
    rollback: bool = Field(
        True, description="Whether an action after which the application does worse is undone once."
    )
    rollback_worse_by: Ratio = Field(
        0.1,
        gt=0,
        le=1,
        description="How much worse counts, as a fraction: of observed throughput lost, or of the offered "
        "rate by which an application that kept up before now falls behind.",
    )
    small_gain: Ratio = Field(
        0.05,
        ge=0,
        le=1,
        description="A growth that raises the observed rate by less than this fraction, while the "
        "application still falls behind, brought little.",
    )
    small_gain_limit: Count = Field(
        3,
        ge=1,
        le=1000,
        description="After this many such actions in a row no further growth is accepted until the "
        "offered rate changes materially.",
    )
    utilisation: Ratio = Field(
        0.8, gt=0, le=1, description="The share of its capacity that an application is sized to use."
    )
    utilisation_low: Ratio = Field(
        0.6,
        ge=0,
        lt=1,
        description="Lower end of the band: nothing is changed while the predicted utilisation at the "
        "held size lies in [utilisation_low, 1) and the backlog does not grow. A reduction that makes "
        "batches hardly longer (slots without tasks) is let through.",
    )
    catch_up: Duration = Field(
        600.0,
        gt=0,
        le=604800,
        description="The time in which a backlog is to be worked off, beside the offered rate.",
    )
    scale_down_delay: Duration = Field(
        60.0,
        ge=0,
        le=604800,
        description="A smaller size must have been proposed without a break for this long; the largest "
        "need seen in that time is what is kept.",
    )
    min_executors: Count = Field(1, ge=1, le=100000, description="Never fewer executors than this.")
    max_executors: Count = Field(64, ge=1, le=100000, description="Never more executors than this.")
    largest_step_down: Ratio = Field(
        0.5,
        gt=0,
        le=1,
        description="The largest fraction of the held executors that one action gives up; always at least "
        "one.",
    )
    batch_period: Duration = Field(
        10.0,
        ge=0.01,
        le=86400,
        description="The batch period aimed at for a query without a trigger interval.",
    )
    latency_target: OptionalDuration = Field(
        None, gt=0, le=604800, description="The end-to-end latency to stay under; `none` for no such target."
    )
    executor_timeout: Duration = Field(
        60.0, gt=0, le=86400, description="How long to wait for requested executors to register."
    )
    drain_timeout: Duration = Field(
        120.0, gt=0, le=86400, description="How long an executor that is to be released may finish its tasks."
    )
    migration: bool = Field(
        True,
        description="Whether state is moved between executors: onto new ones after a scale-out, and "
        "off those that are released before a scale-in.",
    )
    migration_strategy: Literal["fluid", "batched", "all-at-once"] = Field(
        "fluid",
        description="How state moves: `fluid` a bin at a time, and more while batches stay short; `batched` "
        "a fixed number of bins at a time; `all-at-once` in one batch.",
    )
    migration_latency_budget: Ratio = Field(
        1.5,
        ge=1,
        le=100,
        description="How long a batch may take while state moves, as a multiple of a steady batch; where it "
        "is exceeded, fewer bins move at a time.",
    )
    migration_imbalance: Ratio = Field(
        0.2,
        ge=0,
        le=10,
        description="State is spread when the fullest executor's load per slot exceeds the mean by more than "
        "this fraction. A smaller one moves more bytes.",
    )
    migration_order: Literal["hot-first", "cold-first"] = Field(
        "hot-first",
        description="Which bins move first: `hot-first` relieves stragglers soonest, `cold-first` disturbs "
        "least while the pace is being found.",
    )
    migration_bins_per_batch: Count = Field(
        8,
        ge=1,
        le=10_000,
        description="The most bins that move in one batch. `fluid` begins with one and rises to this as the "
        "latency budget allows, `batched` begins with it.",
    )
    migration_gap: Count = Field(
        0,
        ge=0,
        le=1000,
        description="Batches without a move between two with one, in which records that queued up can drain.",
    )
    locality_wait: Duration = Field(
        10.0,
        ge=0,
        le=600,
        description="`spark.locality.wait` is raised to this when state begins to move, and set back when "
        "the autopilot is detached: with a shorter one a busy executor loses the bins placed on it, with a "
        "longer one it can hold a batch up.",
    )
    unscalable_operators: Names = Field(
        (), description="Operators that do not gain from more instances; separated by commas outside YAML."
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
        description="The directory of the control sockets.",
        json_schema_extra={
            "default_text": "`$XDG_RUNTIME_DIR/penstock`, or `penstock-<user id>` among the temporary files"
        },
    )
    max_tasks_per_stage: Count = Field(
        1000,
        ge=1,
        le=1_000_000,
        description="The most tasks of one stage that are read from Spark for one batch.",
    )
    critical_path: Annotated[Literal["veto", "show", "off"], OrOff] = Field(
        "veto",
        description="`show` analyses finished batches for what was on their critical path and shows it; "
        "`veto` also rejects growth that could not shorten a batch, because the driver or a single task "
        "holds it up; `off` does neither.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Settings:
        if self.min_executors > self.max_executors:
            raise ValueError(
                f"min_executors ({self.min_executors}) exceeds max_executors ({self.max_executors})"
            )
        if self.utilisation_low >= self.utilisation:
            raise ValueError(
                f"utilisation_low ({self.utilisation_low}) is not below utilisation ({self.utilisation})"
            )
        return self

    def manager(self) -> ManagerSettings:
        """What the scaling manager needs of these."""
        return ManagerSettings(
            policy_interval=self.policy_interval,
            warm_up_intervals=self.warm_up_intervals,
            activation_intervals=self.activation_intervals,
            activation_statistic=Statistic(self.activation_statistic),
            target_rate_ratio=self.target_rate_ratio,
            ignore_changes_below=self.ignore_changes_below,
            rollback=self.rollback,
            rollback_worse_by=self.rollback_worse_by,
            small_gain=self.small_gain,
            small_gain_limit=self.small_gain_limit,
            utilisation=self.utilisation,
            utilisation_low=self.utilisation_low,
            scale_down_delay=self.scale_down_delay,
            min_executors=self.min_executors,
            max_executors=self.max_executors,
            largest_step_down=self.largest_step_down,
            critical_path_veto=self.critical_path == "veto",
        )

    def ds2(self) -> Ds2Settings:
        """What DS2 needs of these; live, the target rate ratio is the manager's, so it is off here."""
        return Ds2Settings(
            utilisation=self.utilisation,
            catch_up_seconds=self.catch_up,
            default_period_seconds=self.batch_period,
            latency_target_seconds=self.latency_target,
            unscalable=frozenset(self.unscalable_operators),
        )


def load_settings(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    spark_conf: Mapping[str, str] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> Settings:
    """Read all places, the later outranking the earlier: file, environment, Spark, arguments in code."""
    known = tuple(Settings.model_fields)
    surroundings = os.environ if environment is None else environment
    named = surroundings.get(CONFIG_VARIABLE)
    path = file if file is not None else Path(named) if named else None
    given: dict[str, Given] = {
        **(from_yaml(str(path), _read(path), known) if path else {}),
        **from_environment(surroundings, known, reserved=frozenset({CONFIG_VARIABLE})),
        **from_spark(spark_conf or {}, known),
        **from_arguments(arguments or {}, known),
    }
    values: dict[str, Any] = {
        "journal": default_journal(surroundings),
        "runtime_directory": default_runtime_directory(surroundings),
        **{name: one.value for name, one in given.items()},
    }
    try:
        return Settings(**values)
    except ValidationError as error:
        raise BadSettings(_explain(error, given)) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadSettings(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise BadSettings(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise BadSettings(f"{path}: cannot be read: {error.strerror}") from None


def _explain(error: ValidationError, given: Mapping[str, Given]) -> str:
    """The first thing wrong, with the place that it was written in."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        places = [one.place for name, one in given.items() if name in message.replace("(", " ").split()]
        return f"{', '.join(places)}: {message}"
    name = str(first["loc"][0])
    written = given[name].value if name in given else first["input"]
    return (
        f"{given[name].place if name in given else name}: {message[:1].lower()}{message[1:]}, got {written!r}"
    )


def configuration_markdown() -> str:
    """The configuration reference, generated from the fields."""
    from penstock.settings_reference import reference

    return reference(Settings)


if __name__ == "__main__":
    sys.stdout.write(configuration_markdown())
