"""Damaged logs: what can be read is read, what cannot is counted, and nothing ends in a traceback."""

from __future__ import annotations

import io
import json
import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from penstock.commands.diagnosis import make_span, run_diagnosis
from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.log.codec import CHUNK, split_lines
from penstock.diagnose.log.fields import LONGEST_NAME
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from penstock.errors import BadInput
from tests.diagnose.logs import skewed_job, streaming_job
from tests.diagnose.packers import PACKERS

LINES = [*streaming_job(3).lines[:-1], *skewed_job().lines[2:]]
VALUES = (
    None, True, -1, 0, 10**13, 10**30, -(10**30), 1e308, -1e308, 0.5, "", "NaN", "Infinity", "-1", "x",
    [], {}, [None], {"": None}, [[]], "\ud83d\ude00", "9" * 400,
)  # fmt: skip


@pytest.mark.parametrize("value", [1e308, "NaN", "Infinity", -1e308, -5, 1e16])
@pytest.mark.parametrize("phase", ["triggerExecution", "latestOffset", "commitOffsets", "addBatch"])
def test_a_phase_that_no_batch_can_have_is_counted_and_left_out(phase, value):
    lines = streaming_job(3).lines
    last = max(place for place, line in enumerate(lines) if b"QueryProgressEvent" in line)
    event = json.loads(lines[last])
    event["progress"]["durationMs"][phase] = value
    log = read_log([*lines[:last], json.dumps(event).encode(), *lines[last + 1 :]])
    assert (len(log.batches), log.warnings) == (2, {"events with missing or bad fields": 1})
    diagnose_log(log, Span())


@pytest.mark.parametrize("size", [50_000, 1_000_000])
def test_long_names_are_shortened_where_they_are_read(size):
    """The terminal takes time that grows with the square of a name's length."""
    long = b"x" * size
    text = b"\n".join(streaming_job(2).lines)
    for name in (b'"demo"', b'"app-1"', b"count at job.py", b'"Executor ID":"1"', b'"counts"', b'\\"Scan\\"'):
        text = text.replace(name, name.replace(name.strip(b'\\"').rpartition(b'"')[2], long))
    log = read_log(text.split(b"\n"))
    found = [log.name, log.application, *log.tasks.executors, *log.executors, *log.query_names.values()]
    found += [text for stage in log.stages.values() for text in (stage.name, stage.chain)]
    assert max(map(len, found)) <= LONGEST_NAME
    assert log.name.startswith("xxx")
    assert log.name.endswith("…")
    assert set(log.tasks.executors) <= set(log.executors)


def test_a_line_of_many_chunks_is_joined_once():
    """Joining it to what came before with each chunk would copy it as often as it has chunks."""
    chunks = [b"a\nb", *[b"x" * CHUNK] * 3, b"\nc"]
    assert list(split_lines(iter(chunks))) == [b"a", b"b" + b"x" * 3 * CHUNK, b"c"]
    assert list(split_lines(iter(chunks), whole_only=True)) == [b"a", b"b" + b"x" * 3 * CHUNK]


def diagnose(lines, folder):
    """Run all of the command on these lines; refusal is an answer, a warning of numpy is not."""
    path = folder / "app-1"
    path.write_bytes(b"\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            run_diagnosis(path, make_span(), Console(file=io.StringIO(), width=200))
        except BadInput as refused:
            assert str(path) in str(refused)


def paths_in(value, path=()):
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from paths_in(one, (*path, key))


def put(value, path, new):
    """The value with another one at a place."""
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = put(value[path[0]], path[1:], new)
    return copied


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_wrong_values_anywhere_never_end_in_a_traceback(tmp_path_factory, data):
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        event = json.loads(lines[place])
        path = data.draw(st.sampled_from(list(paths_in(event))))
        lines[place] = json.dumps(put(event, path, data.draw(st.sampled_from(VALUES)))).encode()
    diagnose(lines, tmp_path_factory.getbasetemp())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), max_size=20), st.integers(0, 10**6))
def test_flipped_bits_and_a_cut_end_never_end_in_a_traceback(tmp_path_factory, flips, cut):
    content = bytearray(b"\n".join(LINES))
    for place, bit in flips:
        content[place % len(content)] ^= 1 << bit
    diagnose([bytes(content[: 1 + cut % len(content)])], tmp_path_factory.getbasetemp())


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(list(PACKERS)),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), max_size=8),
    st.integers(0, 10**6),
)
def test_flipped_bits_in_a_packed_log_never_end_in_a_traceback(tmp_path_factory, codec, flips, cut):
    content = bytearray(PACKERS[codec](b"\n".join(LINES)))
    for place, bit in flips:
        content[place % len(content)] ^= 1 << bit
    diagnose([bytes(content[: 1 + cut % len(content)])], tmp_path_factory.getbasetemp())


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(len(LINES))), st.integers(0, len(LINES)))
def test_lines_in_any_order_or_missing_never_end_in_a_traceback(tmp_path_factory, order, kept):
    diagnose([LINES[place] for place in order[:kept]], tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("name", ["Executor Run Time", "JVM GC Time", "Executor Deserialize Time"])
@pytest.mark.parametrize("value", [2**62, 2**63 - 1, 10**16, -(2**62)])
def test_a_length_that_no_task_can_have_makes_numpy_not_warn(tmp_path, name, value):
    """Microseconds of such a length do not fit into 64 bits."""
    lines = [re.sub(f'"{name}":\\d+'.encode(), f'"{name}":{value}'.encode(), line) for line in LINES]
    diagnose(lines, tmp_path)
