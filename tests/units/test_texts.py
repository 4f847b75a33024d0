"""Files and YAML that people write, and names with a slip in them."""

from itertools import pairwise

import pytest

from penstock.errors import BadInput, BadSettings
from penstock.units.fields import suggest_name
from penstock.units.texts import parse_yaml, read_text


def test_what_is_written_comes_with_the_lines_of_its_keys():
    assert parse_yaml("a.yaml", "x: 1\n\ny: {z: [2]}\n") == ({"x": 1, "y": {"z": [2]}}, {"x": 1, "y": 3})
    assert parse_yaml("a.yaml", "# nothing\n") == (None, {})
    assert parse_yaml("a.yaml", "- 1\n") == ([1], {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [\n", "a.yaml line 2: not valid YAML: "),
        ("a: 2024-99-99", "a.yaml: not valid YAML: month"),
        ("a: \x00", "a.yaml: not valid YAML: special characters"),
        ("[" * 1000, "a.yaml: not valid YAML: "),
        ("&a [*a, {b: 1, b: 2}]", "a.yaml line 1: b is given twice, first in line 1"),
        ("a:\n- b: 1\n  c: 2\n  b: 3\n", "a.yaml line 4: b is given twice, first in line 2"),
        ("a: 1\nb: 2\na: 3\n", "a.yaml line 3: a is given twice, first in line 1"),
    ],
)
def test_what_is_no_yaml_is_refused_with_file_and_line(text, said):
    with pytest.raises(BadSettings) as caught:
        parse_yaml("a.yaml", text, BadSettings)
    assert str(caught.value).startswith(said)


def test_a_mapping_that_many_others_refer_to_is_checked_once():
    names = [f"n{number}" for number in range(60)]
    lines = ["n0: &n0 {x: 1}"]
    lines += [f"{one}: &{one} [*{before}, *{before}]" for before, one in pairwise(names)]
    assert parse_yaml("a.yaml", "\n".join(lines))[1]["n59"] == 60


def test_a_file_is_read_without_its_mark_or_refused_with_its_name(tmp_path):
    file = tmp_path / "rates.csv"
    file.write_bytes(b"\xef\xbb\xbfa,b")
    assert read_text(file) == "a,b"
    file.write_bytes(b"\xff")
    for place, said in ((file, "not a text file in UTF-8"), (tmp_path, "cannot be read: Is a directory")):
        with pytest.raises(BadInput, match=said):
            read_text(place)
    with pytest.raises(BadSettings, match="none: no such file"):
        read_text(tmp_path / "none", BadSettings)


def test_the_nearest_name_is_suggested_whatever_its_case():
    assert suggest_name("wrods", ["Words", "lines"]) == "; did you mean 'Words'?"
    assert suggest_name("wrods", ["Words"], spell=str.upper) == "; did you mean WORDS?"
    assert suggest_name("x", ["Words", "lines"]) == "; known: Words, lines"
    assert suggest_name("x", ["Words"], list_all=False) == ""
