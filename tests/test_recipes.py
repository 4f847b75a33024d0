"""The recipes for spark-submit, Kubernetes, Airflow and notebooks name what is there."""

from __future__ import annotations

import ast
import inspect
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import penstock
from penstock.runtime.attach import attach
from penstock.runtime.doctor.checks import judge_scaling
from penstock.runtime.status import summarise_timeline
from penstock.runtime.timeline import RecentTimeline
from tests.real_options import Submission, parse_command, read_submission, settings_of, words_of
from tests.test_docs import examples

STARTER = "penstock_job.py"
# of v1beta2, as the operator's own definition of the resource has them
APPLICATION = {"type", "mode", "sparkVersion", "image", "mainApplicationFile", "arguments", "restartPolicy"}
APPLICATION |= {"sparkConf", "driver", "executor"}
DRIVER, EXECUTOR = {"cores", "memory", "serviceAccount"}, {"instances", "cores", "memory"}


def submissions(page: str) -> Iterator[Submission]:
    for body in examples(page, "console"):
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[0] == "spark-submit":
                yield read_submission(words[1:])


def starts(script: str, arguments: list[str]) -> str:
    """The script that runs at last; one of a user's own, or what the starter is told to run."""
    if not script.endswith(STARTER):
        return Path(script).name
    assert arguments[0] == "run"
    return str(parse_command(arguments)["script"].name)


@pytest.mark.parametrize(
    ("page", "modes"), [("spark-submit.md", ["client", "cluster"]), ("kubernetes.md", ["cluster"])]
)
def test_spark_submit_takes_what_the_pages_give_it(page: str, modes: list[str]) -> None:
    found = list(submissions(page))
    assert [one.options["--deploy-mode"] for one in found] == modes
    for one in found:
        assert settings_of(one.conf).flat()
        assert judge_scaling({"spark.master": one.options["--master"], **one.conf}, 20).fine
        assert starts(one.script, one.arguments) == "job.py"
        # nothing but the script's own words may follow it: the JVM is up by then
        assert not one.script.endswith(STARTER) or parse_command(one.arguments)["conf"] in ((), None)
    known = words_of("spark-kubernetes_*.jar", "org/apache/spark/deploy/k8s/Con")
    for one in found:
        for key in one.conf:
            if key.startswith("spark.kubernetes."):
                assert any(key.startswith(word) for word in known if word.count(".") > 2), key


def test_the_starter_is_the_command(tmp_path: Path) -> None:
    (starter,) = examples("spark-submit.md", "python")
    (tmp_path / STARTER).write_text(starter)
    done = subprocess.run(
        [sys.executable, str(tmp_path / STARTER), "--version"],
        env={"PYTHONPATH": str(Path(penstock.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"penstock {penstock.__version__}\n"


def test_the_image_has_what_the_manifest_starts() -> None:
    (image,) = examples("kubernetes.md", "dockerfile")
    (manifest,) = (yaml.safe_load(body) for body in examples("kubernetes.md", "yaml"))
    copied = next(line.split() for line in image.splitlines() if line.startswith("COPY"))
    for path in (manifest["spec"]["mainApplicationFile"].removeprefix("local://"), "/opt/job/job.py"):
        assert Path(path).name in copied[1:-1] and f"{Path(path).parent}/" == copied[-1]
    wheel = f"penstock-{penstock.__version__}-py3-none-any.whl"
    assert wheel in copied and f'{copied[-1]}{wheel}[postgres]"' in image


def test_the_manifest_of_the_operator_is_an_application_that_can_be_sized() -> None:
    (manifest,) = (yaml.safe_load(body) for body in examples("kubernetes.md", "yaml"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    spec = manifest["spec"]
    assert set(spec) == APPLICATION and set(spec["driver"]) == DRIVER and set(spec["executor"]) == EXECUTOR
    conf = spec["sparkConf"]
    assert all(isinstance(value, str) for value in (*conf, *conf.values(), *spec["arguments"]))
    settings = settings_of(conf)
    assert settings.run.only_observes and settings.bounds.most == 20
    assert judge_scaling({"spark.master": "k8s://https://host", **conf}, 20).fine
    assert starts(spec["mainApplicationFile"], spec["arguments"]) == "job.py"


def literal(call: ast.Call, name: str) -> Any:
    return next((ast.literal_eval(one.value) for one in call.keywords if one.arg == name), None)


def calls(page: str, *names: str) -> list[ast.Call]:
    return [
        node
        for body in examples(page, "python")
        for node in ast.walk(ast.parse(body))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names
    ]


def test_the_tasks_of_airflow_run_real_commands() -> None:
    run, health, report = [
        parse_command(shlex.split(literal(call, "bash_command"))[1:])
        for call in calls("airflow.md", "BashOperator")
    ]
    assert run["allow_restart"] and run["script"].name == "clicks.py"
    assert health["journal"] == report["journal"] == "$PENSTOCK_JOURNAL"
    (submit,) = calls("airflow.md", "SparkSubmitOperator")
    assert settings_of(literal(submit, "conf")).bounds.most == 20
    # a name of its own: the journal keeps what it learned under it
    assert literal(submit, "name") == "clicks" and "clicks" in health["application"]
    # Airflow refuses a continuous schedule of which several runs could be at work
    for dag in calls("airflow.md", "DAG"):
        assert literal(dag, "schedule") != "@continuous" or literal(dag, "max_active_runs") == 1


def test_the_cells_of_a_notebook_attach_as_attach_takes_it() -> None:
    known = inspect.signature(attach)
    attached = calls("notebooks.md", "attach")
    for call in attached:
        known.bind(None, **{str(one.arg): ast.literal_eval(one.value) for one in call.keywords})
    assert settings_of({}).run.only_observes is False
    given = [literal(call, "settings") for call in attached]
    assert given == [{"mode": "observe"}, None]
    config = [[ast.literal_eval(one) for one in call.args] for call in calls("notebooks.md", "config")]
    assert settings_of(dict(config)).bounds.most == 4
    assert "last_decision" in summarise_timeline(RecentTimeline())
    for name in ("detach", "pause", "scale", "resume"):
        assert calls("notebooks.md", name) and callable(getattr(penstock.Autopilot, name))
