"""The cluster manager that Spark's settings name: whether it can be reached, and the settings themselves."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import BadInput
from penstock.runtime.doctor.checks import Check
from penstock.units.texts import read_text

ANSWER_SECONDS = 3.0
KUBERNETES_PORT = 443
HADOOP_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def read_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Read `spark-defaults.conf` where Spark would: in SPARK_CONF_DIR, or beneath SPARK_HOME."""
    home = environment.get("SPARK_HOME")
    place = environment.get("SPARK_CONF_DIR") or (str(Path(home) / "conf") if home else "")
    file = Path(place) / "spark-defaults.conf"
    if not place or not file.is_file():
        return {}
    return parse_defaults(read_text(file))


def parse_defaults(text: str) -> dict[str, str]:
    """Split lines of a key and a value with a space or an equals sign between them."""
    lines = (line.strip() for line in text.splitlines())
    words = (re.split(r"\s*[=\s]\s*", line, maxsplit=1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[1].strip() for pair in words if len(pair) == 2}


def check_cluster(conf: Mapping[str, str], environment: Mapping[str, str]) -> Check:
    """See whether the cluster manager of `spark.master` answers."""
    master = conf.get("spark.master", "")
    if not master or master.startswith("local"):
        return Check(
            "cluster", f"spark.master {master}: this machine" if master else "no spark.master is set"
        )
    if master == "yarn":
        return check_yarn(environment)
    try:
        places = list_places(master)
    except (BadInput, ValueError):
        way_out = "name local-cluster[...], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
        return Check("cluster", f"spark.master {master!r} names no cluster manager", way_out)
    problems = [problem for host, port in places if (problem := _why_silent(host, port))]
    if len(problems) == len(places):
        return Check("cluster", f"{master}: {'; '.join(problems)}", "start it, or correct spark.master")
    return Check("cluster", f"{master} answers")


def list_places(master: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of a standalone or Kubernetes master."""
    if master.startswith("spark://"):
        found = [urlsplit(f"spark://{one}") for one in master.removeprefix("spark://").split(",")]
        places = [(one.hostname, one.port) for one in found]
    elif master.startswith("k8s://"):
        address = master.removeprefix("k8s://")
        url = urlsplit(address if "://" in address else f"https://{address}")
        places = [(url.hostname, url.port or KUBERNETES_PORT)]
    else:
        raise BadInput(f"{master}: no cluster manager")
    known = [(host, port) for host, port in places if host and port]
    if len(known) < len(places):
        raise BadInput(f"{master}: a host and a port are expected")
    return known


def check_yarn(environment: Mapping[str, str]) -> Check:
    """See whether Spark can find where YARN is."""
    named = next((environment[name] for name in HADOOP_VARIABLES if environment.get(name)), None)
    way_out = "let HADOOP_CONF_DIR name the directory with the cluster's yarn-site.xml"
    if named is None:
        return Check("cluster", "spark.master is yarn, and HADOOP_CONF_DIR is not set", way_out)
    if not (Path(named) / "yarn-site.xml").is_file():
        return Check("cluster", f"spark.master is yarn, and {named} has no yarn-site.xml", way_out)
    return Check("cluster", f"yarn, as {named} has it")


def _why_silent(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
    except OSError as error:
        return f"{host}:{port} does not answer: {error.strerror or error}"
    return None
