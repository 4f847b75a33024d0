"""The judgement of what was found on a machine: each check is fine, or says the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BadInput
from penstock.observe.real_time import SlotsAtOnce
from penstock.observe.versions import NEWEST_SPARK, OLDEST_SPARK, Version, parse_version

OLDEST_JAVA = 17
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
"""Executors, cores of each, and memory."""
SLIP_SECONDS = 0.1
"""How far wall clock and monotonic clock may part in a moment: more is a clock that is being set."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; with a way out it is not as it should be."""

    name: str
    found: str
    way_out: str = ""

    @property
    def fine(self) -> bool:
        """Whether nothing has to be done."""
        return not self.way_out

    def plain(self) -> dict[str, Any]:
        """Return the check as plain data."""
        return {"check": self.name, "ok": self.fine, "found": self.found, "way_out": self.way_out or None}


@dataclass(frozen=True, slots=True)
class Extra:
    """An optional package: whether it is there, and the settings that need it."""

    name: str
    is_there: bool
    needed_by: str | None


def read_java_version(text: str) -> int | None:
    """Read the major version of what `java -version` says; 1.8 is 8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def judge_java(place: str, said: str | None) -> Check:
    """Judge a Java by what it says of itself; None where there is none at this place."""
    way_out = f"install Java {OLDEST_JAVA} or later, and put it on the PATH or let JAVA_HOME name it"
    if said is None:
        return Check("java", f"no Java at {place}", way_out)
    version = read_java_version(said)
    if version is None:
        return Check("java", f"{place} does not say its version", way_out)
    return Check("java", f"Java {version} at {place}", way_out if version < OLDEST_JAVA else "")


def judge_spark(pyspark: str | None, home: tuple[str, str | None] | None) -> Check:
    """Judge PySpark's version, and that of the Spark in SPARK_HOME, which is started in its place."""
    way_out = "install pyspark 4.1 to 4.3"
    if pyspark is None:
        return Check("spark", "pyspark is not installed", way_out)
    version, found = parse_version(pyspark), f"pyspark {pyspark}"
    if version is None or not OLDEST_SPARK <= version <= NEWEST_SPARK:
        return Check("spark", f"{found} was not tried with Penstock", way_out)
    if home is None:
        return Check("spark", found)
    path, there = home
    found = f"{found}, SPARK_HOME {path} with Spark {there or 'of an unknown version'}"
    same = there is not None and parse_version(there) == version
    return Check("spark", found, "" if same else f"let SPARK_HOME name a Spark {pyspark}, or unset it")


def judge_executor_python(own: Version, named: str, there: str | None, elsewhere: bool) -> Check:
    """Judge the Python that executors start; on other machines it can only be named."""
    ours = f"{own[0]}.{own[1]}"
    way_out = f"let PYSPARK_PYTHON name a Python {ours}: executors and driver need the same minor version"
    if there is None:
        if elsewhere:
            return Check("executor python", f"{named} on the executors' machines; it has to be Python {ours}")
        return Check("executor python", f"{named} does not run", way_out)
    same = parse_version(there) == own
    place = f"{named} is Python {there} here" if elsewhere else f"{named} is Python {there}"
    return Check("executor python", f"{place}, the driver's {ours}", "" if same else way_out)


def judge_scaling(conf: Mapping[str, str], most: int | None) -> Check:
    """Judge by Spark's settings whether executors can be asked for, and so many of them."""
    master = conf.get("spark.master", "")
    if conf.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true":
        found = "spark.dynamicAllocation.enabled is true, and two controllers would fight: only observing"
        return Check("scaling", found, "set spark.dynamicAllocation.enabled to false")
    if not master or (master.startswith("local") and not master.startswith("local-cluster")):
        place = master or "no spark.master is set: Spark takes local[*], or what the job says"
        return Check("scaling", f"{place}; local mode has no executor processes: only observing")
    if count_room(conf) == 0:
        found = "spark.cores.max is below spark.executor.cores: no executor will come"
        return Check("scaling", found, "raise spark.cores.max, or lower spark.executor.cores")
    return Check("scaling", describe_room(conf, most) or "executors can be added and released")


def describe_room(conf: Mapping[str, str], most: int | None) -> str | None:
    """Say that a standalone master will give fewer executors than `most`; None where it is not known to."""
    room = count_room(conf)
    if room is None or most is None or room >= most:
        return None
    limit, each = conf["spark.cores.max"], conf["spark.executor.cores"]
    return (
        f"spark.cores.max={limit} has room for {room} executors of {each} cores, and max_executors is "
        f"{most}: what is asked for beyond that will not come"
    )


def count_room(conf: Mapping[str, str]) -> int | None:
    """Count the executors that a standalone master gives at most; None where the settings do not say."""
    most, each = conf.get("spark.cores.max", ""), conf.get("spark.executor.cores", "")
    told = most.isascii() and most.isdecimal() and each.isascii() and each.isdecimal() and int(each) > 0
    standalone = conf.get("spark.master", "").startswith("spark://")
    return int(most) // int(each) if told and standalone else None


@dataclass(frozen=True, slots=True)
class RealTimeQuery:
    """A query that is to run in real-time mode: the partitions of its source, and how often it shuffles."""

    source: int
    shuffles: int = 0

    def stages(self, conf: Mapping[str, str]) -> tuple[int, ...]:
        """Return the tasks of each of its stages."""
        return (self.source, *[_read_count(conf, SHUFFLE_PARTITIONS, 200)] * self.shuffles)


def parse_real_time(text: str) -> RealTimeQuery:
    """Parse 12, or 12+1 for one shuffle."""
    found = re.fullmatch(r"(\d{1,6})(?:\+(\d{1,2}))?", text.strip(), re.ASCII)
    if found is None or int(found[1]) < 1:
        raise BadInput(f"{text!r} is not PARTITIONS or PARTITIONS+SHUFFLES, such as 12 or 12+1")
    return RealTimeQuery(int(found[1]), int(found[2] or 0))


def judge_real_time(conf: Mapping[str, str], query: RealTimeQuery, most: int | None) -> Check:
    """Judge by Spark's settings whether a query in real-time mode finds a slot for each of its tasks."""
    name, held = "real-time mode", count_slots(conf)
    if conf.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true":
        found = "spark.dynamicAllocation.enabled is true, and Spark then refuses such a query"
        return Check(name, found, "set spark.dynamicAllocation.enabled to false")
    stages = query.stages(conf)
    at_once = SlotsAtOnce(stages, held or 0)
    if held is None:
        return Check(
            name, f"{at_once.needed} slots are needed at once; how many come is for the cluster to say"
        )
    way_out = _make_room(conf, at_once.needed, most)
    if query.shuffles:
        way_out += f", or lower {SHUFFLE_PARTITIONS}, {stages[-1]} for each shuffle"
    return Check(name, at_once.describe(), way_out if at_once.missing else "")


def _make_room(conf: Mapping[str, str], slots: int, most: int | None) -> str:
    """Say what has so many slots."""
    master = conf.get("spark.master", "")
    if master.startswith("local["):
        return f"use local[{slots}]"
    cluster = LOCAL_CLUSTER.fullmatch(master)
    cores = int(cluster[2]) if cluster else _read_count(conf, "spark.executor.cores", 1)
    executors = -(-slots // max(1, cores // _read_count(conf, "spark.task.cpus", 1)))
    bound = f" (max_executors is {most})" if most is not None and most < executors else ""
    return f"start with {executors} executors of {cores} cores{bound}"


def count_slots(conf: Mapping[str, str]) -> int | None:
    """Count the slots that an application starts with; None where its settings do not say."""
    master, per_task = conf.get("spark.master", ""), _read_count(conf, "spark.task.cpus", 1)
    if cluster := LOCAL_CLUSTER.fullmatch(master):
        return int(cluster[1]) * (int(cluster[2]) // per_task)
    if local := re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", master):
        return int(local[1]) // per_task
    cores = _read_count(conf, "spark.executor.cores", 1)
    if master.startswith("spark://"):
        room = count_room(conf)
        return None if room is None else room * (cores // per_task)
    if master == "yarn" or master.startswith("k8s://"):
        return _read_count(conf, "spark.executor.instances", 2) * (cores // per_task)
    return None


def _read_count(conf: Mapping[str, str], key: str, default: int) -> int:
    text = conf.get(key, "").strip()
    return max(1, int(text)) if text.isascii() and text.isdecimal() else default


def judge_ports(taken: Mapping[str, str | None]) -> Check:
    """Judge the addresses that settings name: setting and address → why nobody can listen there."""
    if not taken:
        return Check("ports", "no setting asks for one")
    problems = [f"{named}: {problem}" for named, problem in taken.items() if problem]
    if problems:
        return Check("ports", "; ".join(problems), "end what listens there, or set another address or port 0")
    return Check("ports", f"free: {', '.join(taken)}")


def judge_clock(slip: float, ahead: float | None, tolerance: float) -> Check:
    """Judge the wall clock: how far it slipped against the monotonic one, and how far it is ahead of others.

    `ahead` is against the journal's database; None where the journal is a file.
    """
    way_out = "let one time service set the clocks of all machines, in small steps"
    if abs(slip) > SLIP_SECONDS:
        return Check("clock", f"the wall clock was set by {slip:+.1f} s while we looked", way_out)
    if ahead is None:
        return Check("clock", "the wall clock goes as the monotonic one")
    found = f"{abs(ahead):.1f} s {'ahead of' if ahead >= 0 else 'behind'} the journal's database"
    return Check("clock", found, way_out if abs(ahead) > tolerance else "")


def judge_extras(extras: Iterable[Extra]) -> Check:
    """Judge optional packages: one is missed only where a setting needs it."""
    known = list(extras)
    missed = [one for one in known if one.needed_by and not one.is_there]
    if missed:
        found = "; ".join(f"{one.needed_by} needs the extra {one.name}" for one in missed)
        return Check("extras", found, f"pip install 'penstock[{','.join(one.name for one in missed)}]'")
    there = ", ".join(one.name for one in known if one.is_there) or "none"
    absent = ", ".join(one.name for one in known if not one.is_there)
    return Check("extras", f"installed: {there}" + (f"; not needed here: {absent}" if absent else ""))
