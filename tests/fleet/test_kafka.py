"""Options of security reach both clients of Kafka, and their secrets reach nobody."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.cli import perform
from penstock.errors import BadSettings
from penstock.fleet.kafka import (
    KafkaTransport,
    hide_options,
    hide_secrets,
    translate_for_agents,
    translate_for_spark,
)
from penstock.fleet.places import FleetTopic, parse_place
from penstock.settings.model import Settings, load_settings

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = MODULE + r""" required username="us\"er" password="p,w=\\1";"""
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
USER = {"sasl.username": 'us"er', "sasl.password": "p,w=\\1"}


def test_user_and_password_reach_both_clients_in_their_own_names():
    for given in ({**SASL, **USER}, {**SASL, "sasl.jaas.config": JAAS}):
        assert translate_for_agents(given) == {**SASL, **USER}
        assert translate_for_spark(given) == {
            f"kafka.{name}": text for name, text in {**SASL, "sasl.jaas.config": JAAS}.items()
        }


def test_authorities_reach_both_clients():
    pem = {"ssl.truststore.location": "/etc/ca.pem", "ssl.truststore.type": "PEM"}
    assert translate_for_agents(pem) == {"ssl.ca.location": "/etc/ca.pem"}
    assert translate_for_spark({"ssl.ca.location": "/etc/ca.pem"}) == {
        f"kafka.{name}": text for name, text in pem.items()
    }
    both = {
        "ssl.truststore.location": "/etc/ca.jks",
        "ssl.truststore.password": "pw",
        "ssl.ca.location": "/etc/ca.pem",
    }
    assert translate_for_agents(both) == {"ssl.ca.location": "/etc/ca.pem"}
    assert translate_for_spark(both)["kafka.ssl.truststore.location"] == "/etc/ca.jks"
    with pytest.raises(BadSettings, match=r"ssl\.ca\.location"):
        translate_for_agents({"ssl.truststore.location": "/etc/ca.jks"})
    with pytest.raises(BadSettings, match=r"sasl\.mechanism of PLAIN"):
        translate_for_spark({"sasl.username": "user"})


def test_the_client_of_an_agent_takes_them(tmp_path: Path):
    place = parse_place("kafka://127.0.0.1:1/fleet", {**SASL, **USER})
    assert isinstance(place, FleetTopic)
    KafkaTransport(place)
    assert "p,w" not in repr(place)
    wrong = FleetTopic(
        "127.0.0.1:1", "fleet", {**SASL, **USER, "ssl.ca.location": str(tmp_path / "missing.pem")}
    )
    with pytest.raises(BadSettings, match=r"fleet_kafka_options: .*ssl\.ca\.location"):
        KafkaTransport(wrong)
    with pytest.raises(BadSettings, match="fleet_kafka_options") as refused:
        KafkaTransport(FleetTopic("127.0.0.1:1", "fleet", {**SASL, **USER, "sasl.nonsense": "p,w=\\1"}))
    assert "p,w" not in str(refused.value)


def test_secrets_are_not_shown():
    options = {
        **SASL,
        **USER,
        "sasl.jaas.config": JAAS,
        "ssl.key.password": "deep",
        "ssl.key.pem": "-----BEGIN",
    }
    shown = hide_options(options)
    assert {name for name, text in shown.items() if text == "***"} == {
        "sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.key.pem",
    }  # fmt: skip
    assert hide_secrets("no: deep -----BEGIN", options) == "no: *** ***"


def test_settings_take_them_with_sparks_prefix_or_without(tmp_path: Path):
    file = tmp_path / "penstock.yaml"
    file.write_text(
        f"fleet_kafka_options:\n  kafka.security.protocol: SASL_SSL\n  sasl.password: {json.dumps('a,b')}\n"
    )
    found = load_settings(file, {}).membership.kafka_options
    assert found == {"security.protocol": "SASL_SSL", "sasl.password": "a,b"}
    written = {"PENSTOCK_FLEET_KAFKA_OPTIONS": "security.protocol=SASL_SSL,sasl.password=s3=cret"}
    assert load_settings(None, written).membership.kafka_options["sasl.password"] == "s3=cret"


@pytest.mark.parametrize(
    "options", ["group.id=x,sasl.password=s3cret", "sasl.password=s3cret,security.protocol="]
)
def test_what_is_wrong_with_them_is_told_without_the_secrets(options: str):
    with pytest.raises(BadSettings, match="PENSTOCK_FLEET_KAFKA_OPTIONS") as refused:
        load_settings(None, {"PENSTOCK_FLEET_KAFKA_OPTIONS": options})
    assert "s3cret" not in str(refused.value)


def test_config_shows_no_secret(capsys: pytest.CaptureFixture[str]):
    given = "spark.penstock.fleet_kafka_options=security.protocol=SASL_SSL,sasl.password=s3cret"
    for further in ([], ["--json"]):
        assert perform(["config", "--conf", given, *further]) == 0
        said = capsys.readouterr().out
        assert "s3cret" not in said and "SASL_SSL" in said


def test_the_key_file_is_a_path_and_clocks_differ_by_seconds():
    assert Settings().membership.key_file is None and Settings().membership.clock_tolerance == 30.0
    home = os.path.expanduser("~")  # noqa: PTH111
    assert load_settings(None, {"PENSTOCK_FLEET_KEY_FILE": "~/key"}).membership.key_file == f"{home}/key"
    with pytest.raises(BadSettings, match="fleet_clock_tolerance"):
        load_settings(None, {}, arguments={"fleet_clock_tolerance": "2h"})
