"""The judgement of what was found on a machine: each check is fine, or says the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.observe.versions import NEWEST_SPARK, OLDEST_SPARK, Version, parse_version

OLDEST_JAVA = 17
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
