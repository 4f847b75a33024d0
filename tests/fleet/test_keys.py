"""Who speaks for whom: an application that has only its own key is believed of itself and of nobody else."""

from __future__ import annotations

import hmac
import math
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.fleet.decision import DECISION
from penstock.fleet.keys import MISFIT, UNSIGNED, FleetKey, parse_key
from penstock.fleet.records import read_lines
from tests.fleet.agents import a_record

FLEET = FleetKey(bytes(range(32)))
WORDS, THEIRS = FLEET.for_application("words"), FLEET.for_application("theirs")


def read(*lines: bytes) -> tuple[list[tuple[str, float]], list[str]]:
    """Applications and ends of the windows that are believed, and why others are not."""
    found = read_lines(list(lines), [f"file-{place}" for place in range(len(lines))], key=FLEET)
    rows = [(row["application"], row["end"]) for row in found.windows.to_pylist()]
    return rows, found.dead["reason"].to_pylist()


def a_decision(**changes: Any) -> dict[str, Any]:
    row = {"application": "words", "decision_id": 5, "expires_at": 9.0, "reason": "P4", "parallelism": 3}
    return dict.fromkeys(DECISION.names) | row | changes


def signed(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return FLEET.sign(pa.Table.from_pylist(list(rows), schema=DECISION)).to_pylist()


def test_a_window_is_believed_of_the_application_that_signed_it_alone():
    """The attack: any member's windows were taken for those of the application that they named."""
    line = WORDS.sign_line(a_record("words"))
    assert read(line, b"  " + line + b"\r") == ([("words", 10.0)] * 2, [])
    assert read(THEIRS.sign_line(a_record("words", end=1500.0))) == ([], [MISFIT])
    assert read(orjson.dumps(a_record("words"))) == ([], [UNSIGNED])
    other = FleetKey(bytes(32)).for_application("words")
    assert read(other.sign_line(a_record("words"))) == ([], [MISFIT])


@pytest.mark.parametrize(
    ("part", "other"),
    [
        (b'"end":10.0', b'"end":90.0'),
        (b'"words"', b'"theirs"'),
        (b'{"application"', b'{ "application"'),
        (b'"signature":"', b'"signature":"0'),
        (b'"}', b'","needed_parallelism":1}'),
        (b'"}', b'"} {}'),
    ],
)
def test_a_window_that_was_changed_on_its_way_is_not_believed(part: bytes, other: bytes):
    line = WORDS.sign_line({"end": 10.0, "application": "words"})
    changed = line.replace(part, other) if part != b'"}' else line.removesuffix(part) + other
    assert changed != line
    rows, reasons = read(changed)
    assert rows == [] and reasons[0] in (MISFIT, UNSIGNED)


def test_two_windows_in_one_line_are_not_taken_for_the_next_one():
    """The attack: Arrow reads two rows from one line, which made another's line vouch for the second.

    Four lines with four rows, of which the second row is not what the second line says.
    """
    two = orjson.dumps(a_record("theirs")) + orjson.dumps(a_record("words", end=1500.0))
    lines = [two, orjson.dumps(a_record("words")), b'{"application":"theirs","x":', b"{}}"]
    found = read_lines(lines, ["file"] * 4)
    assert [(row["application"], row["end"]) for row in found.windows.to_pylist()] == [("words", 10.0)]
    assert found.dead.num_rows == 3
    rows, reasons = read(sealed(two), WORDS.sign_line(a_record("words")))
    assert rows == [("words", 10.0)] and len(reasons) == 1


def sealed(line: bytes) -> bytes:
    """Any bytes with the attacker's own signature at their end."""
    body = line.removesuffix(b"}")
    signature = hmac.digest(THEIRS.secret, b"window\0" + body, "sha256").hex()
    return body + b',"signature":"' + signature.encode() + b'"}'


def test_a_name_that_is_given_twice_is_not_believed():
    line = orjson.dumps(a_record("theirs"))
    assert read(sealed(line)) == ([("theirs", 10.0)], [])
    for again in (b'"application"', b'"\\u0061pplication"'):
        assert read(sealed(line.removesuffix(b"}") + b"," + again + b':"words"}'))[0] == []


@given(st.text(min_size=1).filter(lambda name: "\0" not in name and name.isprintable()))
def test_every_name_can_be_signed(name: str):
    line = FLEET.for_application(name).sign_line(a_record(name))
    assert read(line) == ([(name, 10.0)], [])
    assert parse_key(FLEET.for_application(name).text) == FLEET.for_application(name)


def test_a_decision_is_opened_by_the_application_that_it_is_for():
    rows = signed(a_decision(), a_decision(application="theirs"))
    assert WORDS.open_decision(rows[0])["parallelism"] == 3
    with pytest.raises(ValueError, match="not a decision for"):
        WORDS.open_decision(rows[1])
    over_kafka = orjson.loads(orjson.dumps(rows[0]))
    assert WORDS.open_decision(over_kafka) == WORDS.open_decision(rows[0]), (
        "the same bytes are signed on either way"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"parallelism": 1},
        {"expires_at": 1e12},
        {"decision_id": 6},
        {"settings": '{"spark.driver.extraJavaOptions": "-javaagent:theirs.jar"}'},
        {"reason": None},
        {"further": 1},
        {"signature": None},
        {"signature": "é"},
    ],
)
def test_a_decision_that_was_changed_or_made_up_is_not_opened(changes: dict[str, Any]):
    """The attack: whoever could write to the topic or the directory resized any application."""
    (row,) = signed(a_decision())
    with pytest.raises(ValueError, match="does not fit"):
        WORDS.open_decision(row | changes)
    with pytest.raises(ValueError, match="does not fit"):
        WORDS.open_decision(a_decision())


def test_a_window_is_no_decision_and_what_is_used_is_what_was_signed():
    line = orjson.loads(WORDS.sign_line(a_decision()))
    with pytest.raises(ValueError, match="does not fit"):
        WORDS.open_decision(line)
    (row,) = signed(a_decision(measured=math.nan))
    assert WORDS.open_decision(row)["measured"] is None
    assert WORDS.open_decision(row | {"parallelism": 3, "after_cores": math.inf})["after_cores"] is None


def test_a_key_is_not_shown_and_belongs_to_its_name():
    for key in (FLEET, WORDS):
        assert key.secret.hex() in key.text and parse_key(key.text + "\n") == key
        assert key.secret.hex() not in repr(key) and str(key.secret) not in repr(key)
    assert WORDS.for_application("words") is WORDS
    with pytest.raises(BadInput, match="'words', and this application is named 'theirs'"):
        WORDS.for_application("theirs")
    assert WORDS != THEIRS and FLEET.for_application("words") == WORDS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "penstock-fleet-key-1",
        f"penstock-fleet-key-2 {'ab' * 32}",
        f"penstock-fleet-key-1 {'ab' * 31}",
        f"penstock-fleet-key-1 {'xy' * 32}",
        f'penstock-fleet-key-1 {"ab" * 32} "words"',
        f"penstock-application-key-1 {'ab' * 32}",
        f"penstock-application-key-1 {'ab' * 32} words",
        f"penstock-application-key-1 {'ab' * 32} 7",
    ],
)
def test_what_is_no_key_is_refused_without_the_secret(text: str):
    with pytest.raises(BadInput) as refused:
        parse_key(text)
    assert "ab" * 31 not in str(refused.value)
