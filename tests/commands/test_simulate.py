"""`penstock simulate`: its answers, and one clear line with file and key for whatever is wrong."""

import json

import pytest

from penstock.cli import perform
from tests.simulate.experiments import PLAIN, written


@pytest.fixture
def scenario(tmp_path):
    def write(**changes):
        file = tmp_path / "mine.yaml"
        file.write_text(written(changes))
        return str(file)

    return write


def parse(**changes):
    return {"operators": {**PLAIN["operators"], "parse": {**PLAIN["operators"]["parse"], **changes}}}


def test_json_is_the_last_line_and_has_the_figures(capsys, scenario):
    assert perform(["simulate", scenario(), "--policy", "ds2", "--seed", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["scenario"], found["seed"], found["seconds"]) == ("mine", 3, 600)
    (policy,) = found["policies"]
    assert policy["policy"] == "ds2" and policy["steps"] == len(policy["actions"]) > 0
    for field in (
        "flips",
        "over_slot_seconds",
        "under_slot_seconds",
        "p50_latency_seconds",
        "p99_latency_seconds",
    ):
        assert policy[field] >= 0
    assert policy["over_latency_target_seconds"] is None
    assert policy["actions"][0]["to"]["count"] >= 2 and policy["decisions"][0]["reason"]


def test_the_table_names_policy_action_and_reason(capsys):
    assert perform(["simulate", "dhalion-wordcount"]) == 0
    shown = capsys.readouterr().out
    assert "flatmap 1 → 10, count 1 → 20" in shown and "p99" in shown


def test_a_page_is_written(capsys, scenario, tmp_path):
    page = tmp_path / "out" / "run.html"
    assert perform(["simulate", scenario(), "--html", str(page), "--json"]) == 0
    assert "mine" in page.read_text()
    assert str(page) in capsys.readouterr().err


def test_initial_parallelism_can_be_given(capsys):
    assert perform(["simulate", "table4-q1", "--initial", "main=16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policies"][0]["steps"] == 0


def test_shipped_scenarios_are_listed(capsys):
    assert perform(["simulate", "--list", "--json"]) == 0
    names = [one["name"] for one in json.loads(capsys.readouterr().out)["scenarios"]]
    assert "dhalion-wordcount" in names and "table4-q11" in names


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noize": 0.1}, "noize: unknown key; did you mean 'noise'?"),
        (parse(selectivty=2), "operators.parse.selectivty: unknown key; did you mean 'selectivity'?"),
        (parse(inputs=["count"]), "operators: the graph has a cycle"),
        (parse(inputs=["event"]), "operators.parse.inputs: no operator 'event'; did you mean 'events'?"),
        (parse(inputs=[]), "operators.parse.inputs"),
        (
            parse(curve={"kind": "usll"}),
            "operators.parse.curve.kind: unknown curve 'usll'; did you mean 'usl'?",
        ),
        (parse(curve={"kind": "usl", "alfa": 0.1}), "operators.parse.curve.usl.alpha: field required"),
        (
            parse(curve={"kind": "usl", "alpha": 0, "alfa": 0.1}),
            "operators.parse.curve.usl.alfa: unknown key; did you mean 'alpha'?",
        ),
        (parse(service_time=None), "operators.parse.service_time: is missing"),
        (parse(service_time="soon"), "operators.parse.service_time: 'soon' is not a duration"),
        (parse(instances=0), "operators.parse.instances"),
        (
            parse(curve={"kind": "table", "capacity": {1: 100}}),
            "operators.parse.service_time: a table of capacities already says",
        ),
        ({"sources": {"events": {"rate": "constant:-5"}}}, "sources.events.rate: the step 0=-5 needs"),
        ({"sources": {"events": {"rate": "wave:5"}}}, "sources.events.rate: the rate profile 'wave:5'"),
        ({"sources": {}}, "sources"),
        ({"duration": "1.5s"}, "duration: '1.5s' is not a whole number of seconds"),
        ({"scaling": {"kind": "restart", "paus": 3}}, "scaling.paus: unknown key; did you mean 'pause'?"),
        ({"settings": {"policy_intervall": 5}}, "settings: policy_intervall: unknown setting; did you mean"),
        ({"settings": {"journal": "x"}}, "settings.journal: has no meaning in a simulation"),
        ({"settings": {"policy_interval": 0.5}}, "settings.policy_interval: not a whole number of seconds"),
        (
            {"slowdowns": [{"operator": "pars", "start": 0, "end": 5, "capacity": 0.5}]},
            "slowdowns.0.operator: no operator 'pars'; did you mean 'parse'?",
        ),
        (
            {"slowdowns": [{"operator": "parse", "start": 5, "end": 5, "capacity": 0.5}]},
            "slowdowns.0.end: 5 is not after the start at 5",
        ),
        (
            parse(distribution="gama"),
            "operators.parse.distribution.kind: unknown distribution 'gama'; did you mean 'gamma'?",
        ),
        (parse(distribution={"kind": "gamma"}), "operators.parse.distribution: gamma needs a cv"),
        (
            parse(distribution={"kind": "exponential", "cv": 1}),
            "operators.parse.distribution: exponential takes no cv",
        ),
        (
            parse(distribution={"kind": "gamma", "vc": 1, "cv": 1}),
            "operators.parse.distribution.vc: unknown key; did you mean 'cv'?",
        ),
        ({"sources": {"events": {"rate": "constant:5", "arrivals": "poison"}}}, "sources.events.arrivals"),
        ({"latency": "event"}, "latency: input should be 'estimated' or 'events'"),
        ({"latency": "events"}, "operators.count.queue: latency: events knows neither bounds nor skew"),
        (
            {"latency": "events", "sources": {"events": {"rate": "constant:5", "service_time": 1}}},
            "sources.events.service_time: with latency: events a source is read without delay",
        ),
        (
            {
                "latency": "events",
                "duration": "24h",
                "operators": {"parse": {"inputs": ["events"], "service_time": 1}},
            },
            "latency: events follows single records, and 86,400,000 are more than",
        ),
        (
            {"failures": [{"operator": "parse", "lasts": 5}]},
            "failures.0: give either start or every",
        ),
        (
            {"failures": [{"operator": "prase", "lasts": 5, "start": 1}]},
            "failures.0.operator: no operator 'prase'; did you mean 'parse'?",
        ),
        ({"failures": [{"operator": "parse", "lasts": "long", "start": 1}]}, "failures.0.lasts: 'long' is"),
        ({"interference": {"core": 4}}, "interference.core: unknown key; did you mean 'cores'?"),
        (
            {"interference": {"neighbours": {"every": 9, "lasts": 9, "capacity": 1.5}}},
            "interference.neighbours.capacity: input should be less than or equal to 1",
        ),
        ({"batches": {"triger": 4}}, "batches.triger: unknown key; did you mean 'trigger'?"),
        ({"batches": {}}, "operators.count.queue: has no meaning in batches"),
        (
            {"operators": {"parse": {"inputs": ["events"], "service_time": 1, "scalable": False}}},
            "operators: none of them can be scaled, so there is nothing to decide",
        ),
        ({"duration": "365d"}, "duration: 31,536,000 s of 3 operators are too much to simulate at once"),
    ],
)
def test_a_bad_scenario_is_told_with_file_and_key(capsys, scenario, changes, said):
    file = scenario(**changes)
    assert perform(["simulate", file]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{file}: {said}" in line


@pytest.mark.parametrize("where", ["duration: {}", "duration: 60\nsettings: {{utilisation: {}}}"])
def test_a_value_that_aliases_unfold_is_told_in_a_short_line(capsys, tmp_path, where):
    folded = "&c [&b [&a [lol, lol, lol, lol, lol, lol, lol, lol], *a, *a, *a, *a, *a], *b, *b, *b, *b, *b]"
    rest = 'sources: {e: {rate: "constant:5"}}\noperators: {o: {inputs: [e], service_time: 1}}\n'
    file = tmp_path / "mine.yaml"
    file.write_text(f"{where.format(f'[{folded}, *c, *c, *c, *c, *c]')}\n{rest}")
    assert perform(["simulate", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "mine.yaml" in line and "lol" in line and len(line) < 700


def test_a_csv_recording_is_replayed_and_a_missing_column_told(capsys, scenario, tmp_path):
    (tmp_path / "trace.csv").write_text("second,rate\n100,500\n110,2000\n")
    good = {"events": {"rate": {"csv": "trace.csv", "scale": 0.5}}}
    assert perform(["simulate", scenario(sources=good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["oracle"]["parse"] == {"least": 1, "most": 1}
    bad = {"events": {"rate": {"csv": "trace.csv", "rate": "value"}}}
    assert perform(["simulate", scenario(sources=bad)]) == 2
    said = capsys.readouterr().err
    assert "sources.events.rate" in said and "has no column 'value'; it has second, rate" in said
    negative = {"events": {"rate": {"csv": "minus.csv"}}}
    (tmp_path / "minus.csv").write_text("second,rate\n0,-500\n")
    assert perform(["simulate", scenario(sources=negative)]) == 2
    assert "sources.events.rate: the step 0=-500" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a scenario file"),
        (["dhalion-wordcont"], "did you mean 'dhalion-wordcount'?"),
        (["./none.yaml"], "none.yaml: no such file"),
        (["dhalion-wordcount", "--policy", "ds3"], "unknown policy 'ds3'; did you mean 'ds2'?"),
        (["dhalion-wordcount", "--initial", "flatmap"], "'flatmap' is not operator=count"),
        (["dhalion-wordcount", "--initial", "flat=3"], "--initial: dhalion-wordcount has no 'flat'; it has "),
        (
            ["dhalion-wordcount", "--initial", "flatmap=0"],
            "--initial: flatmap may have 1 to 64 instances, not 0",
        ),
    ],
)
def test_bad_usage_is_one_line(capsys, arguments, said):
    assert perform(["simulate", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_text_that_is_no_scenario(capsys, tmp_path):
    file = tmp_path / "mine.yaml"
    for text, said in (("a: [", "not valid YAML"), ("- 1", "a scenario is a mapping"), ("{}", "duration")):
        file.write_text(text)
        assert perform(["simulate", str(file)]) == 2
        assert f"{file}" in (told := capsys.readouterr().err) and said in told


def test_a_policy_that_cannot_decide_anything_is_told_of(capsys, scenario):
    chosen = ["--policy", "ds2", "--policy", "queueing", "--policy", "trigger-interval"]
    assert perform(["simulate", scenario(), *chosen, "--json"]) == 0
    told = capsys.readouterr().err
    assert "trigger-interval will decide nothing: mine has operators with instances of their own" in told
    assert "queueing will decide nothing: mine sets no latency_target" in told
    assert "ds2" not in told
