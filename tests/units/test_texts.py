"""Files and YAML that people write, and names with a slip in them."""

import pytest

from penstock.errors import BadInput, BadSettings
from penstock.units.fields import suggest_name
from penstock.units.texts import cut_text, list_first, parse_yaml, read_text, show_value


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


def bomb(last: str, levels: int = 60) -> str:
    """Each name stands for the one before it twice: a text of a few lines that says 2**60 things."""
    lines = ["n0: &n0 {x: 1}"]
    lines += [last.format(one=number, before=number - 1) for number in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb("n{one}: &n{one} [*n{before}, *n{before}]"),
        bomb("n{one}: &n{one} {{a: *n{before}, b: *n{before}}}"),
        bomb("n{one}: &n{one} {{<<: [*n{before}, *n{before}]}}"),
        "a: &a [1, *a]",
        "&a {b: [*a]}",
    ],
)
def test_what_says_much_more_than_is_written_is_refused_before_it_is_unfolded(text):
    with pytest.raises(
        BadInput, match=r"a\.yaml( line \d+)?: not valid YAML: .*(aliases unfolded|contains itself)"
    ):
        parse_yaml("a.yaml", text)


def test_a_mapping_that_others_refer_to_is_checked_once():
    text = "n0: &n0 {x: 1}\n" + "\n".join(f"n{number}: [*n0, {{<<: *n0}}]" for number in range(1, 60))
    values, lines = parse_yaml("a.yaml", text)
    assert values["n59"] == [{"x": 1}, {"x": 1}] and lines["n59"] == 60


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


def test_a_text_and_a_list_are_cut_where_they_get_long_and_say_so():
    assert (cut_text("executor", 8), cut_text("executors", 8)) == ("executor", "executo…")
    assert (list_first(["1", "2"], 2), list_first(["1", "2", "3"], 2)) == ("1, 2", "1, 2, …")


def test_a_foreign_value_is_shown_in_few_characters_whatever_it_is():
    assert show_value("a'b") == '"a\'b"' and show_value(2.5) == "2.5"
    assert show_value({"a": [1]}) == "{'a': [1]}"
    assert show_value(10**400) == "a number of hundreds of digits"
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    for value in (nested, {"a": nested}, "x" * 1000, ["x" * 1000] * 1000, list(range(10_000))):
        assert len(show_value(value)) <= 103
