"""A pipeline said as shortly as can be, without place and schemas: both are found where that is possible."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from penstock.errors import BadInput
from penstock.pipeline import Pipeline, files, kafka
from penstock.pipeline.spark_schemas import (
    Found,
    check_columns,
    check_reserved,
    check_result,
    check_start,
    complete,
)

SOME = pa.table({"number": [1, 2], "pixels": [b"a", b"bc"]})
IMAGES = Found("`number` bigint, `pixels` binary", SOME)


class Look:
    """What is in directories, by their last name."""

    def __init__(self, **topics):
        self.topics, self.asked = topics, []

    def files(self, directory):
        self.asked.append(directory)
        return self.topics.get(Path(directory).name)

    def transform_schema(self, function, schema):
        return f"made by {function.name} of {schema}"


def thumbnails(**options):
    pipeline = Pipeline("thumbnails", **options)

    @pipeline.function(reads="images", writes="small", parallelism=(1, 15))
    def resize(batch):
        return batch.assign(size=batch["pixels"].map(len))

    @pipeline.function(reads="small", writes="objects", latency_target="1s")
    def recognise(batch):
        return pd.DataFrame({"what": ["cat"] * len(batch), "sure": 0.5})

    return pipeline


def schemas(pipeline):
    return {name: topic.schema for name, topic in pipeline.topics.items()}


def test_the_shortest_pipeline_lies_in_topics_here_and_takes_its_schemas_from_what_is_there():
    pipeline, look = thumbnails(), Look(images=IMAGES)
    complete(pipeline, look)
    assert pipeline.location == files(str(Path("topics").absolute()))
    assert look.asked == [str(Path("topics").absolute() / name) for name in ("images", "small", "objects")]
    assert schemas(pipeline) == {
        "images": IMAGES.schema,
        "small": "`number` bigint, `pixels` binary, `size` bigint",
        "objects": "`what` string, `sure` double",
    }
    assert pipeline.check().functions == ("resize", "recognise")


def test_a_topic_that_has_files_keeps_their_schema():
    small = Found("`number` bigint, `size` double", pa.table({"number": [7], "size": [1.5]}))
    pipeline = thumbnails(topics=files("t"))
    complete(pipeline, Look(images=IMAGES, small=small))
    assert schemas(pipeline)["small"] == small.schema
    assert schemas(pipeline)["objects"] == "`what` string, `sure` double"


def test_what_is_declared_is_not_looked_for():
    pipeline, look = Pipeline("p", topics=files("t")), Look()
    pipeline.topic("a", schema="x int")
    pipeline.add(len, name="f", reads="a", writes="b", schema="x int")
    pipeline.existing("archive", object(), reads="b", writes="c")
    complete(pipeline, look)
    assert look.asked == [] and schemas(pipeline) == {"a": "x int", "b": "x int", "c": None}


def test_a_topic_that_is_not_there_stays_unknown():
    pipeline = thumbnails()
    with pytest.raises(BadInput, match="function 'resize' reads the unknown topic 'images'"):
        complete(pipeline, Look())


def test_nothing_is_looked_for_on_a_broker():
    pipeline, look = Pipeline("p", topics=kafka("host:9092")), Look()
    pipeline.add(len, name="f", reads="a")
    complete(pipeline, look)
    assert look.asked == []
    with pytest.raises(BadInput, match="unknown topic 'a'"):
        pipeline.check()


def test_a_place_of_one_topic_is_none_for_the_others():
    pipeline = Pipeline("p")
    pipeline.topic("a", schema="x int", at=kafka("host:9092"))
    pipeline.add(len, name="f", reads="a")
    complete(pipeline, Look())
    assert pipeline.location is None


def test_a_dataframe_function_is_tried_without_records():
    pipeline = Pipeline("p", topics=files("t"))
    pipeline.topic("a", schema="x int")
    pipeline.add(len, name="f", reads="a", writes="b", takes="dataframe")
    complete(pipeline, Look())
    assert schemas(pipeline)["b"] == "made by f of x int"


@pytest.mark.parametrize(
    ("options", "sample", "said"),
    [
        ({}, None, "function 'f' needs schema=: there is nothing yet to try it on"),
        ({}, SOME[:0], "function 'f' needs schema=: there is nothing yet to try it on"),
        ({"key": "number", "state": "n int"}, SOME, "needs schema=: one with state is not tried"),
        ({}, SOME, "function 'f' needs schema=: a try on 2 records failed: no such luck"),
    ],
)
def test_a_schema_that_cannot_be_told_has_to_be_given(options, sample, said):
    def call(batch):
        raise ValueError("no such luck")

    pipeline = Pipeline("p", topics=files("t"))
    pipeline.add(call, name="f", reads="images", writes="b", **options)
    with pytest.raises(BadInput) as caught:
        complete(pipeline, Look(images=Found("number bigint", sample)))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "function 'f' returned NoneType, not a batch of records"),
        (pa.table({"x": pa.nulls(2)}), "column 'x' has only nulls"),
    ],
)
def test_what_a_try_returns_must_have_columns_with_types(result, said):
    pipeline = Pipeline("p", topics=files("t"))
    pipeline.add(lambda batch: result, name="f", reads="images", writes="b", takes="arrow")
    with pytest.raises(BadInput) as caught:
        complete(pipeline, Look(images=IMAGES))
    assert said in str(caught.value)


SCHEMAS = {
    "a": StructType().add("number", LongType()).add("text", StringType()),
    "b": StructType().add("text", StringType()).add("number", LongType()),
    "c": StructType().add("number", LongType()),
}


def function(**options):
    return Pipeline("p", topics=files("t")).add(len, name="f", **options)


def test_a_column_of_the_name_under_which_moments_travel_is_refused():
    check_reserved("p", SCHEMAS)
    taken = StructType().add("number", LongType()).add("Penstock_Entered", StringType())
    with pytest.raises(BadInput, match="p: topic 'd' has a column 'Penstock_Entered'; choose another name"):
        check_reserved("p", {**SCHEMAS, "d": taken})


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
