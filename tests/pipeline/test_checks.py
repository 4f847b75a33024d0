"""Columns that functions name must be those of the topics that they read."""

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from penstock.errors import BadInput
from penstock.pipeline import Pipeline, files
from penstock.pipeline.spark_checks import check_columns, check_result, check_start

SCHEMAS = {
    "a": StructType().add("number", LongType()).add("text", StringType()),
    "b": StructType().add("text", StringType()).add("number", LongType()),
    "c": StructType().add("number", LongType()),
}


def function(**options):
    return Pipeline("p", topics=files("t")).add(len, name="f", **options)


def test_columns_that_are_there_are_fine_whatever_their_order():
    check_columns("p", function(reads=["a", "b"], key="number", order="text"), SCHEMAS)
    check_columns("p", function(reads="elsewhere", key="number"), SCHEMAS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"reads": "a", "key": "numbr"},
            "p: function 'f': topic 'a' has no column 'numbr', only number",
        ),
        ({"reads": "c", "key": "number", "order": "text"}, "topic 'c' has no column 'text'"),
        ({"reads": ["a", "c"]}, "p: function 'f' reads 'a' and 'c' together, whose columns differ"),
    ],
)
def test_a_column_that_is_not_there_is_named_with_its_function(options, said):
    with pytest.raises(BadInput) as caught:
        check_columns("p", function(**options), SCHEMAS)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"g": 1}, "start_at: no function 'g'; there are f"),
        ({"f": 5}, "start_at: 'f' may have 1 to 4 instances, not 5"),
        ({"f": "2"}, "start_at: 'f' may have 1 to 4 instances, not '2'"),
    ],
)
def test_sizes_to_begin_with_are_checked(sizes, said):
    pipeline = Pipeline("p", topics=files("t"))
    pipeline.add(len, name="f", reads="a", parallelism=(1, 4))
    check_start(pipeline, {"f": 4})
    with pytest.raises(BadInput) as caught:
        check_start(pipeline, sizes)
    assert said in str(caught.value)


def test_a_result_may_promise_more_than_its_topic():
    wanted = StructType().add("words", ArrayType(StringType(), containsNull=True))
    found = StructType().add("words", ArrayType(StringType(), containsNull=False), nullable=False)
    check_result("f", found, wanted)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("c", "function 'f' returned no column 'text'"),
        ("strange", "function 'f' returned the column 'more', which its topic lacks"),
        ("wrong", "function 'f' returned bigint in column 'text', not string"),
    ],
)
def test_a_result_with_other_columns_names_function_and_column(result, said):
    found = {
        **SCHEMAS,
        "strange": StructType([*SCHEMAS["a"].fields]).add("more", LongType()),
        "wrong": StructType().add("number", LongType()).add("text", LongType()),
    }
    with pytest.raises(BadInput) as caught:
        check_result("f", found[result], SCHEMAS["a"])
    assert said in str(caught.value)
