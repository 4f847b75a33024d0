from __future__ import annotations

import pytest

from penstock.decide.offline.recording import (
    USE_OBSERVED_RATE,
    parse_rates,
    parse_source_rates,
    parse_topology,
    split_epochs,
)
from penstock.errors import BadRecording

TOPOLOGY = [
    "# operator_id1,operator_name1,instances1,operator_id2,operator_name2,instances2",
    "s,Source: lines,1,f,Splitter FlatMap,2",
    "f,Splitter FlatMap,2,c,Count -> Sink,1",
]


def topology(lines=TOPOLOGY):
    return parse_topology(lines, "topology.csv")


def rates(*lines):
    return parse_rates(lines, "rates.csv", topology())


def test_a_topology_names_operators_edges_and_instances():
    read = topology()
    assert read.graph.edges == (("Source: lines", "Splitter FlatMap"), ("Splitter FlatMap", "Count -> Sink"))
    assert read.name_of == {"s": "Source: lines", "f": "Splitter FlatMap", "c": "Count -> Sink"}
    assert read.instances == {"Source: lines": 1, "Splitter FlatMap": 2, "Count -> Sink": 1}


def test_comments_blank_lines_line_ends_spaces_quotes_and_marks_are_understood():
    lines = ["\ufeff# a comment\r\n", "\r\n", "   ", ' s , "a, b",1, t ,c, 2 \r\n', "  # another"]
    read = topology(lines)
    assert read.graph.edges == (("a, b", "c"),)
    assert read.instances == {"a, b": 1, "c": 2}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,a,1,b,b", "line 2: 5 columns, expected 6"),
        ("a,a,1,b,b,1,1", "line 2: 7 columns, expected 6"),
        ("a,a,one,b,b,1", "line 2: instances1 is 'one', not a number"),
        ("a,a,1,b,b,0", "line 2: instances2 is 0, not a whole number"),
        ("a,a,1.5,b,b,1", "line 2: instances1 is 1.5, not a whole number"),
        ("a,a,-1,b,b,1", "line 2: instances1 is -1, not a whole number"),
        (",a,1,b,b,1", "line 2: operator_id1 is empty"),
        ("a,a,1,b,,1", "line 2: operator_name2 is empty"),
        ("a,same,1,b,same,1", "line 2: the name 'same' already belongs to another operator id than 'b'"),
        ('a,"a,1,b,b,1', "line 2: "),
    ],
)
def test_a_bad_edge_is_named_by_file_and_line(line, message):
    with pytest.raises(BadRecording, match=r"^topology\.csv, ") as caught:
        topology(["# header", line])
    assert message in str(caught.value)


def test_an_edge_given_twice_names_both_lines():
    with pytest.raises(BadRecording, match=r"topology\.csv, line 2: the edge 'a' → 'b' .* line 1"):
        topology(["a,a,1,b,b,1", "a,a,1,b,b,1"])


@pytest.mark.parametrize("second", ["a,other,1,c,c,1", "a,a,2,c,c,1"])
def test_an_operator_that_contradicts_itself_is_refused(second):
    with pytest.raises(BadRecording, match="line 2: operator 'a' was named 'a' with 1 instances before"):
        topology(["a,a,1,b,b,1", second])


def test_a_cycle_is_named_with_its_file():
    with pytest.raises(BadRecording, match=r"topology\.csv: the graph has a cycle: (a → b → a|b → a → b)"):
        topology(["a,a,1,b,b,1", "b,b,1,a,a,1"])


def test_a_topology_without_edges_is_refused():
    with pytest.raises(BadRecording, match=r"topology\.csv: no edge"):
        topology(["# nothing"])


def test_a_rate_line_is_read_by_operator_id():
    (row,) = rates("f,2,2,115963261869347,122613.65,1.2e6,39895.27,405430")
    assert (row.operator, row.instance, row.instances) == ("Splitter FlatMap", "2", 2)
    assert row.timestamp == 115963261869347
    assert (row.true_processing, row.true_output) == (122613.65, 1.2e6)
    assert (row.observed_processing, row.observed_output) == (39895.27, 405430)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("f,1,2,10,1,1,1", "7 columns, expected 8: operator_id,instance_id"),
        ("f,1,2,10,fast,1,1,1", "true_processing_rate is 'fast', not a number"),
        ("f,1,2,10,1,nan,1,1", "true_output_rate is 'nan', not a number"),
        ("f,1,2,10,1,1,inf,1", "observed_processing_rate is 'inf', not a number"),
        ("f,1,2,10,1,1,1,-3", "observed_output_rate is -3, a rate cannot be negative"),
        ("f,1,2,10,1,1,1,1_000", "observed_output_rate is '1_000', not a number"),
        ("f,1,2,10,,1,1,1", "true_processing_rate is empty"),
        ("f,1,2,noon,1,1,1,1", "epoch_timestamp is 'noon', not a number"),
        ("f,1,none,10,1,1,1,1", "instances is 'none', not a number"),
        ("f,,2,10,1,1,1,1", "instance_id is empty"),
        ("x,1,2,10,1,1,1,1", "operator 'x' is not in the topology"),
        ("operator_id,instance_id,instances,epoch_timestamp,a,b,c,d", "is not in the topology"),
    ],
)
def test_a_bad_rate_line_is_named_by_file_and_line(line, message):
    with pytest.raises(BadRecording, match=r"^rates\.csv, line 3: ") as caught:
        rates("# header", "f,1,2,9,1,1,1,1", line)
    assert message in str(caught.value)


def test_the_same_report_twice_names_both_lines():
    with pytest.raises(BadRecording, match=r"line 2: instance '1' of 'Splitter FlatMap' at 9 .* line 1"):
        rates("f,1,2,9,1,1,1,1", "f,1,2,9,1,1,1,1")


def test_source_rates_are_read_by_name_or_id():
    assert parse_source_rates(["Source: lines,250.5"], "sources.csv", topology()) == {"Source: lines": 250.5}
    assert parse_source_rates(["s,-1"], "sources.csv", topology()) == {"Source: lines": USE_OBSERVED_RATE}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Source: lines", "1 columns, expected 2"),
        ("Source: lines,many", "output_rate_per_instance is 'many', not a number"),
        ("Source: lines,-2", "output_rate_per_instance is -2, a rate cannot be negative"),
        ("Splitter FlatMap,5", "operator 'Splitter FlatMap' is not a source"),
        ("elsewhere,5", "operator 'elsewhere' is not in the topology"),
    ],
)
def test_a_bad_source_rate_is_named_by_file_and_line(line, message):
    with pytest.raises(BadRecording, match=r"^sources\.csv, line 1: ") as caught:
        parse_source_rates([line], "sources.csv", topology())
    assert message in str(caught.value)


def test_a_source_given_twice_is_refused():
    with pytest.raises(BadRecording, match="line 2: the rate of source 'Source: lines' is given twice"):
        parse_source_rates(["Source: lines,1", "s,1"], "sources.csv", topology())


class TestEpochs:
    def cut(self, *lines):
        return [[row.timestamp for row in epoch] for epoch in split_epochs(rates(*lines))]

    def test_an_epoch_ends_when_an_instance_reports_again(self):
        lines = [f"{op},{at},1,1,1,1" for op, at in (("s,1,1", 10), ("f,1,2", 13), ("f,2,2", 12))]
        lines += [f"{op},{at},1,1,1,1" for op, at in (("s,1,1", 20), ("f,1,2", 21), ("f,2,2", 25))]
        assert self.cut(*lines) == [[10, 12, 13], [20, 21, 25]]

    def test_lines_may_be_grouped_by_instance(self):
        lines = [f"{op},{at},1,1,1,1" for op in ("s,1,1", "f,1,2") for at in (10, 20, 30)]
        assert self.cut(*lines) == [[10, 10], [20, 20], [30, 30]]

    def test_nothing_recorded_is_no_epoch(self):
        assert split_epochs(()) == []
