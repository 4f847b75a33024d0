"""The chart of a fleet starts the real command, with no more rights than it needs. Helm is not needed here.

Templates are read as if each of their conditions held: `{{ .Values.x }}` is the value, other lines of
directives are left out. `make test-chart` has Helm itself render them, and checks the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import penstock
from penstock.fleet.standby import LEASE_SECONDS
from penstock.journal.private_files import SECRET_MODES
from penstock.runtime.control import ANSWER_SECONDS
from penstock.runtime.heartbeat import INTERVALS
from penstock.runtime.spark_ui import METRICS_PAGE, METRICS_ROOT
from tests.real_options import parse_command, settings_of, words_of

CHART = Path(__file__).parent.parent / "deploy" / "penstock-fleet"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
PLACE = re.compile(r"\.Values((?:\.\w+)+)")
GIVEN = {
    "image": "registry.example/penstock:1",
    "driverAccount": "spark",
    "windows": "kafka://broker:9092/windows",
    "decisions": "kafka://broker:9092/decisions",
}


def find_value(path: str) -> Any:
    found: Any = {**VALUES, **GIVEN}
    for name in path.strip(".").split("."):
        found = found[name]
    return found


def read_plainly(text: str) -> list[dict[str, Any]]:
    """The documents of a template whose conditions all hold."""
    lines = [line for line in text.splitlines() if not re.match(r"\s*\{\{-", line)]
    text = re.sub(
        r"\{\{ \.Values((?:\.\w+)+)[^}]*\}\}", lambda one: str(find_value(one[1])), "\n".join(lines)
    )
    key, value = next(iter(VALUES["conf"].items()))
    for written, stands_for in (("$key", key), ("$value", value)):
        text = text.replace(f"{{{{ {written} }}}}", str(stands_for))
    text = re.sub(r"\{\{ \.Release\.\w+ \}\}", "fleet", text)
    assert "{{" not in text, text
    return [one for one in yaml.safe_load_all(text) if one]


def documents() -> Iterator[dict[str, Any]]:
    for template in sorted((CHART / "templates").iterdir()):
        yield from read_plainly(template.read_text())


def of_kind(kind: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if one["kind"] == kind]


def check_controller(found: list[dict[str, Any]]) -> None:
    """The controller is what `penstock fleet run` takes, and can read what is given to it."""
    (deployment,) = of_kind("Deployment", found)
    pod = deployment["spec"]["template"]["spec"]
    (controller,), (copier,) = pod["containers"], pod["initContainers"]
    assert controller["command"] == ["penstock"]
    options = parse_command(controller["args"])
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounted = {one["mountPath"]: one["name"] for one in controller["volumeMounts"]}
    assert volumes[mounted[str(options["directory"])]]["persistentVolumeClaim"]
    environment = {one["name"]: one for one in controller["env"]}
    named = re.fullmatch(r"\$\((\w+)\)", options["journal"])
    assert named and "secretKeyRef" in environment[named[1]]["valueFrom"], "the secret stands in no manifest"
    assert "secretKeyRef" in environment["PGPASSWORD"]["valueFrom"]
    assert settings_of(dict(pair.split("=", 1) for pair in options["conf"])).flat()
    # the key is copied, by the user who reads it, with a mode that is believed
    assert copier["command"][-1] == str(options["key_file"]) and int(copier["command"][2], 8) in SECRET_MODES
    assert mounted[str(options["key_file"].parent)] in {one["name"] for one in copier["volumeMounts"]}
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    for container in (controller, copier):
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def check_probe(found: list[dict[str, Any]]) -> None:
    """The probe waits for an answer, and for Spark's start, and finds the socket where it is."""
    (deployment,) = of_kind("Deployment", found)
    (controller,) = deployment["spec"]["template"]["spec"]["containers"]
    probe = controller["livenessProbe"]
    assert probe["exec"]["command"] == ["penstock", "health"] and parse_command(["health"])
    assert probe["timeoutSeconds"] > ANSWER_SECONDS
    patience = probe["initialDelaySeconds"] + (probe["failureThreshold"] - 1) * probe["periodSeconds"]
    assert patience > INTERVALS * LEASE_SECONDS
    directory = next(one["value"] for one in controller["env"] if one["name"] == "PENSTOCK_RUNTIME_DIRECTORY")
    writable = {one["mountPath"] for one in controller["volumeMounts"] if not one.get("readOnly")}
    assert {str(Path(directory).parent), controller["workingDir"]} <= writable


def check_rights(found: list[dict[str, Any]]) -> None:
    """The controller has no rights; a driver has no star, no secret, no node and nothing of the cluster."""
    (deployment,) = of_kind("Deployment", found)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    bound = {one["name"] for role in of_kind("RoleBinding", found) for one in role["subjects"]}
    accounts = {one["metadata"]["name"] for one in of_kind("ServiceAccount", found)}
    assert pod["serviceAccountName"] in accounts - bound and bound <= accounts
    assert not of_kind("ClusterRole", found) and not of_kind("ClusterRoleBinding", found)
    (role,) = of_kind("Role", found)
    allowed = {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    assert {what for what, _ in allowed} == {"pods", "configmaps", "services", "persistentvolumeclaims"}
    assert "*" not in {verb for _, verb in allowed}
    assert {("pods", "create"), ("pods", "watch"), ("pods", "delete")} <= allowed


def check_monitor(found: list[dict[str, Any]]) -> None:
    """Prometheus asks the pods of drivers, by the label and the port that Spark gives them."""
    (monitor,) = of_kind("PodMonitor", found)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    names = words_of("spark-kubernetes_*.jar", "org/apache/spark/deploy/k8s/Constants")
    (label,) = monitor["spec"]["selector"]["matchLabels"].items()
    assert label == ("spark-role", "driver") and {"spark-role", endpoint["port"]} <= names
    assert endpoint["path"] == METRICS_ROOT + METRICS_PAGE


CHECKS = (check_controller, check_probe, check_rights, check_monitor)


def test_what_the_chart_makes_is_what_the_product_takes() -> None:
    found = list(documents())
    for check in CHECKS:
        check(found)


def test_every_value_is_used_and_every_used_one_is_there() -> None:
    text = "".join(one.read_text() for one in (CHART / "templates").iterdir())
    used = {match.split(".")[1] for match in PLACE.findall(text)}
    assert used == set(VALUES) == set(SCHEMA["properties"])
    for path in PLACE.findall(text):
        find_value(path)


def test_values_are_refused_where_they_are_not_known() -> None:
    def walk(schema: dict[str, Any], values: dict[str, Any]) -> None:
        if "properties" in schema:
            assert schema["additionalProperties"] is False and set(schema["properties"]) == set(values)
            for name, inner in schema["properties"].items():
                walk(inner, values[name])

    walk(SCHEMA, VALUES)


def test_the_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == penstock.__version__
