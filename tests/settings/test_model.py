"""Settings: three places with one set of names, units, ranges, and messages that name the place."""

from __future__ import annotations

import os
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.decide.manager.settings import ManagerSettings, Statistic
from penstock.errors import BadSettings
from penstock.settings.model import Settings, known_names, load_settings, settings_fields
from penstock.settings.reference import write_reference
from penstock.settings.run import RunSettings, default_journal
from penstock.settings.sources import environment_name, spark_key

WHERE_ONE_IS_OUT_OF_RANGE = {
    "executor_metrics": "listen",
    "restart_quiet_hours": "08:00-18:00, 22:30-06:00",
    "no_changes": "Fri 18:00-Mon 06:00",
    "sage_pin": "heap, driver-heap",
    "sage_veto": "P3,P8",
    "services": "profiles=http://profiles:9090/metrics",
    "service_metrics": "latency_seconds=call_seconds,profiles.error_ratio=failed_ratio",
    "host_memory": "64g",
    "standalone_master": "http://master:8080/json/",
    "quota_memory": "1t",
    "fleet_kafka_options": "security.protocol=SSL",
    "forecast_season": "2h",
    "metrics": "127.0.0.1:4051",
    "notify_events": "rollback",
    "otlp_endpoint": "http://127.0.0.1:4318/v1/traces",
    "forecast_trend_windows": "4",
    "ds2_learned_least_sizes": "3",
    "threshold_scale_out_records": "200",
    "queueing_operator_targets": "parse=1s,count=500ms",
    "queueing_windows_kept": "5",
    "autrascale_uniform_samples": "4",
    "autrascale_changes_per_hour": "4",
    "autrascale_rate_tolerance": "0.2",
    "dhalion_backpressure_share": "0.2",
    "trigger_interval_scale_in_share": "0.4",
}
REFERENCE = Path(__file__).parents[2] / "docs" / "configuration.md"


def loaded(environment=None, spark_conf=None, file=None, arguments=None) -> Settings:
    return load_settings(file, environment or {}, spark_conf or {}, arguments)


def complaint(**places) -> str:
    with pytest.raises(BadSettings) as caught:
        loaded(**places)
    return str(caught.value)


@pytest.fixture
def yaml_file(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "penstock.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_defaults_are_those_of_the_parts():
    settings = loaded()
    assert settings.manager == ManagerSettings()
    assert settings.goals.catch_up == 600
    assert settings.run.mode == "act"


def test_each_place_outranks_the_one_before_it(yaml_file):
    file = yaml_file("policy_interval: 1s\nwarm_up_intervals: 1\nmax_executors: 11\nmin_executors: 3\n")
    environment = {
        "PENSTOCK_POLICY_INTERVAL": "2s",
        "PENSTOCK_WARM_UP_INTERVALS": "2",
        "PENSTOCK_MAX_EXECUTORS": "12",
    }
    spark_conf = {
        "spark.penstock.policy.interval": "3s",
        "spark.penstock.warm_up_intervals": "3",
        "spark.app.name": "x",
    }
    settings = loaded(environment, spark_conf, file, {"policy_interval": "4s"})
    assert (settings.manager.policy_interval, settings.manager.warm_up_intervals) == (4, 3)
    assert (settings.bounds.most, settings.bounds.least) == (12, 3)


@pytest.mark.parametrize("key", ["spark.penstock.policy.interval", "spark.penstock.policy_interval"])
def test_a_dot_may_stand_for_an_underscore_in_spark_keys(key):
    assert loaded(spark_conf={key: "3s"}).manager.policy_interval == 3


def test_two_spellings_of_one_spark_key_must_agree():
    spellings = {"spark.penstock.policy.interval": "3s", "spark.penstock.policy_interval": "4s"}
    assert "contradicts Spark key spark.penstock.policy.interval" in complaint(spark_conf=spellings)


def test_every_setting_can_be_given_in_every_place(yaml_file):
    for name in known_names():
        value = {"policy": "x", "mode": "observe", "activation_statistic": "maximum"}.get(name, "1")
        value = {"utilisation_low": "0.5", "critical_path": "show"}.get(name, value)
        value = {"migration_strategy": "batched", "migration_order": "cold-first", "fuse": "always"}.get(
            name, value
        )
        value = WHERE_ONE_IS_OUT_OF_RANGE.get(name, value)
        given = loaded({environment_name(name): value})
        assert given.flat()[name] == loaded(spark_conf={spark_key(name): value}).flat()[name]
        assert given != loaded() or value == "1"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("no_changes", "Fri 18:00", "Fri 18:00-Mon 06:00, are expected"),
        ("no_changes", "Fri 18:00-Man 06:00", "no day of the week: Mon, Tue"),
        ("restart_quiet_hours", "8-18", "hours such as 22:00-06:00"),
        ("restart_quiet_hours", "08:00-08:00", "no span of time"),
        ("restart_quiet_hours", "08:00-25:00", "no time of the day"),
        ("sage_pin", "hip", "unknown parameter 'hip'"),
        ("sage_veto", "P9", "unknown rule 'P9'"),
        ("service_lags", "1,-1", "a whole number of intervals"),
        ("service_lags", "1,1001", "a whole number of intervals up to 1000"),
        ("services", "profiles", "names with texts"),
        ("services", "profiles=file:///etc/passwd", "must begin with http://"),
        ("service_metrics", "profiles.speed=x", "unknown aspect 'speed'"),
        ("quota_memory", "much", "not a size such as 4g"),
        ("standalone_master", "spark://master:7077", "begins with http://"),
    ],
)
def test_what_sizing_is_told_must_make_sense(name, value, said):
    assert said in complaint(environment={environment_name(name): value})


def test_values_from_text_get_their_types():
    settings = loaded(
        {
            "PENSTOCK_ROLLBACK": "false",
            "PENSTOCK_UNSCALABLE_OPERATORS": "map, sink",
            "PENSTOCK_LATENCY_TARGET": "30s",
            "PENSTOCK_ACTIVATION_STATISTIC": "maximum",
        }
    )
    assert not settings.manager.rollback
    assert settings.goals.unscalable == frozenset({"map", "sink"})
    assert settings.goals.latency_target == 30
    assert settings.manager.activation_statistic is Statistic.MAXIMUM


def test_parameters_of_policies_reach_them(yaml_file):
    file = yaml_file("queueing_operator_targets: {parse: 1s}\nautrascale_switch_after: 4\n")
    settings = loaded({"PENSTOCK_THRESHOLD_SCALE_OUT_RECORDS": "500"}, file=file)
    assert settings.queueing.operator_targets == {"parse": 1.0}
    assert settings.autrascale.switch_after == 4
    assert settings.threshold.scale_out_records == 500


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("threshold_scale_in_recods", "1", "did you mean PENSTOCK_THRESHOLD_SCALE_IN_RECORDS"),
        ("threshold_scale_in_records", "200", "is not below threshold_scale_out_records (150.0)"),
        ("forecast_season", "10s", "is not longer than forecast_horizon (60)"),
        ("autrascale_changes_per_hour", "1", "greater than or equal to 2, got '1'"),
        ("queueing_operator_targets", "parse", "got 'parse'"),
        ("queueing_operator_targets", "parse=soon", "got 'parse=soon'"),
    ],
)
def test_wrong_parameters_of_policies_are_named(key, value, says):
    message = complaint(environment={f"PENSTOCK_{key.upper()}": value})
    assert message.startswith(f"environment variable PENSTOCK_{key.upper()}: ")
    assert says in message


@pytest.mark.parametrize("name", ["critical_path", "executor_metrics"])
def test_off_is_a_word_in_the_file_though_yaml_takes_it_for_no(name, yaml_file):
    assert loaded(file=yaml_file(f"{name}: off\n")).flat()[name] == "off"
    assert "got True" in complaint(file=yaml_file(f"{name}: on\n"))


@pytest.mark.parametrize(("written", "lags"), [("[0, 2]", ("0", "2")), ("3", ("3",)), ("0,1", ("0", "1"))])
def test_names_that_are_numbers_are_taken_from_the_file(written, lags, yaml_file):
    assert loaded(file=yaml_file(f"service_lags: {written}\n")).sage.lags == lags


def test_a_latency_target_can_be_taken_back(yaml_file):
    file = yaml_file("latency_target: 30s\n")
    assert loaded({"PENSTOCK_LATENCY_TARGET": "none"}, file=file).goals.latency_target is None


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ({"environment": {"PENSTOCK_MIN_EXECUTOR": "3"}}, "; did you mean PENSTOCK_MIN_EXECUTORS?"),
        (
            {"spark_conf": {"spark.penstock.policyinterval": "3"}},
            "; did you mean spark.penstock.policy_interval?",
        ),
        ({"arguments": {"utilization": 0.7}}, "; did you mean utilisation?"),
        ({"arguments": {"xyzzy": 0.7}}, ""),
    ],
)
def test_unknown_names_are_errors_that_suggest_the_nearest(places, says):
    (written,) = next(iter(places.values()))
    assert complaint(**places).endswith(f"{written}: unknown setting{says}")


def test_an_unknown_name_in_the_file_has_its_line(yaml_file):
    file = yaml_file("policy: ds2\n\nscale_down_dela: 3\n")
    assert (
        complaint(file=file)
        == f"{file} line 3, scale_down_dela: unknown setting; did you mean scale_down_delay?"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_executors", "0"),
        ("min_executors", "two"),
        ("min_executors", "1.5"),
        ("policy_interval", "0s"),
        ("policy_interval", "3 weeks"),
        ("utilisation", "1.2"),
        ("utilisation", "nan"),
        ("target_rate_ratio", "0.5"),
        ("target_rate_ratio", "inf"),
        ("largest_step_down", "0"),
        ("mode", "acting"),
        ("rollback", "perhaps"),
        ("policy", ""),
        ("journal", ""),
        ("runtime_directory", " "),
        ("latency_target", "0"),
        ("activation_intervals", "0"),
    ],
)
def test_values_out_of_range_name_the_place_and_the_value(name, value):
    message = complaint(environment={environment_name(name): value})
    assert environment_name(name) in message
    assert repr(value) in message


@pytest.mark.parametrize("name", ["min_executors", "utilisation", "policy_interval"])
def test_a_yes_is_no_number(name, yaml_file):
    file = yaml_file(f"{name}: yes\n")
    assert complaint(file=file).startswith(f"{file} line 1, {name}: ")


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"PENSTOCK_MIN_EXECUTORS": "70"}, "min_executors (70) exceeds max_executors (64)"),
        ({"PENSTOCK_UTILISATION": "0.6"}, "utilisation_low (0.6) is not below utilisation (0.6)"),
    ],
)
def test_settings_that_contradict_each_other_name_both(environment, says):
    (variable,) = environment
    assert complaint(environment=environment) == f"environment variable {variable}: {says}"


def test_broken_yaml_names_file_and_line(yaml_file):
    file = yaml_file("policy: ds2\nmode: [act\npolicy_interval: 3\n")
    assert complaint(file=file).startswith(f"{file} line 3: not valid YAML: ")


@pytest.mark.parametrize("text", ["- policy\n- mode\n", "ds2\n", "3\n"])
def test_a_file_that_is_no_mapping_is_refused(text, yaml_file):
    file = yaml_file(text)
    assert complaint(file=file).startswith(f"{file}: settings must be a mapping")


@pytest.mark.parametrize(
    "text",
    ["policy: ds2\n? [a, b]\n: 3\n", "!!python/object:os.system x\n", "mode: 2024-99-99\n", "a: \x00\n"],
)
def test_strange_yaml_is_refused_and_never_run(text, yaml_file):
    file = yaml_file(text)
    assert str(file) in complaint(file=file)


def test_a_key_given_twice_is_refused(yaml_file):
    file = yaml_file("max_executors: 3\nmode: act\nmax_executors: 30\n")
    assert complaint(file=file) == f"{file} line 3: max_executors is given twice, first in line 1"


def test_an_empty_file_sets_nothing(yaml_file):
    assert loaded(file=yaml_file("# nothing yet\n")) == loaded()


def test_files_that_cannot_be_read_are_named(tmp_path):
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert complaint(file=tmp_path / "absent.yaml").endswith("absent.yaml: no such file")
    assert "cannot be read" in complaint(file=tmp_path)
    assert "not a text file in UTF-8" in complaint(file=binary)


def test_the_environment_may_name_the_file_and_that_is_no_setting(yaml_file):
    file = yaml_file("max_executors: 7\n")
    assert loaded({"PENSTOCK_CONFIG": str(file)}).bounds.most == 7
    assert "config" not in known_names()


def test_default_places_follow_the_environment_that_was_given(tmp_path):
    settings = loaded({"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(tmp_path / "run")})
    assert settings.run.journal == str(tmp_path / "state" / "penstock" / "journal.db")
    assert settings.run.runtime_directory == str(tmp_path / "run" / "penstock")
    assert loaded().run.journal == str(Path.home() / ".local" / "state" / "penstock" / "journal.db")
    assert loaded().run.runtime_directory.endswith(f"penstock-{os.getuid()}")


def test_a_journal_may_be_a_url_or_a_path_from_home():
    assert loaded(arguments={"journal": "postgresql://host/db"}).run.journal == "postgresql://host/db"
    assert loaded(arguments={"journal": "~/j.db"}).run.journal == str(Path.home() / "j.db")


def test_a_user_without_a_home_has_a_journal_all_the_same(tmp_path):
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert default_journal(environment, nowhere) == str(tmp_path / "penstock" / "journal.db")
    at_home = default_journal({"XDG_STATE_HOME": str(tmp_path / "state")}, nowhere)
    assert at_home == str(tmp_path / "state" / "penstock" / "journal.db")


def test_a_home_that_nobody_has_is_named():
    message = complaint(environment={"PENSTOCK_JOURNAL": "~nobody-of-this-name/j.db"})
    assert message.startswith("environment variable PENSTOCK_JOURNAL: the home directory")


def test_settings_are_frozen_and_closed():
    with pytest.raises(ValidationError):
        loaded().run.mode = "observe"
    with pytest.raises(FrozenInstanceError):
        loaded().run = RunSettings()
    with pytest.raises(BadSettings, match="unheard_of"):
        Settings(unheard_of=1)
    with pytest.raises(BadSettings, match="max_executor: unknown setting; did you mean max_executors"):
        loaded().change(max_executor=3)


def test_changed_settings_are_checked_and_leave_the_others_alone():
    settings = loaded({"PENSTOCK_MAX_EXECUTORS": "12"})
    changed = settings.change(policy="queueing", latency_target="2s")
    assert (changed.run.policy, changed.goals.latency_target, changed.bounds) == (
        "queueing",
        2.0,
        settings.bounds,
    )
    assert settings.run.policy == "ds2"
    with pytest.raises(BadSettings, match="utilisation"):
        settings.change(utilisation=1.2)


def test_no_two_settings_share_a_name():
    assert len(set(known_names())) == len(known_names())


def test_numbers_have_a_range():
    for name, field in settings_fields().items():
        if field.annotation in {int, float}:
            assert any(hasattr(limit, "le") or hasattr(limit, "lt") for limit in field.metadata), name
            assert any(hasattr(limit, "ge") or hasattr(limit, "gt") for limit in field.metadata), name


def test_the_reference_is_not_stale():
    assert REFERENCE.read_text(encoding="utf-8") == write_reference(), (
        "run `python -m penstock.settings > docs/configuration.md`"
    )
