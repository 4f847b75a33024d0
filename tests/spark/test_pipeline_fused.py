"""Fused functions on a real cluster: the same records, dead letters and figures as apart."""

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as sf

from penstock.pipeline import Pipeline, files
from penstock.pipeline.spark_topics import dead_letters
from tests.spark.test_pipeline import numbers, read, rows, settings, topic, until

pytestmark = pytest.mark.spark
HELD = 3

PER_PART = 400
PARTS = 7
TOGETHER = [["square", "odd", "spell"]]


def three(root):
    """pandas → Arrow → pandas, with records that make the first or the last fail."""
    pipeline = Pipeline("three", topics=files(str(root), files_per_batch=1))
    pipeline.topic("numbers", schema="number bigint")

    @pipeline.function(
        reads="numbers", writes="squares", schema="number bigint, square bigint", parallelism=(1, 3)
    )
    def square(batch):
        if (batch["number"] % 397 == 13).any():
            raise ValueError("an unlucky number")
        return batch.assign(square=batch["number"] ** 2)

    @pipeline.function(
        reads="squares", writes="odds", schema="square bigint", takes="arrow", parallelism=(1, 3)
    )
    def odd(batch):
        kept = batch.filter(pc.equal(pc.bit_wise_and(batch.column("number"), 1), 1))
        return pa.table({"square": kept.column("square")})

    @pipeline.function(reads="odds", writes="texts", schema="text string", parallelism=2)
    def spell(batch):
        if (batch["square"] == 25).any():
            raise ValueError("no twenty-five")
        return pd.DataFrame({"text": batch["square"].astype(str)})

    return pipeline


def expect(count):
    """What must come out, computed record by record."""
    lucky = [number for number in range(count) if number % 397 != 13]
    texts = [str(number**2) for number in lucky if number % 2 == 1 and number != 5]
    return sorted(texts), count - len(lucky)


def count_odds(parts):
    """Count the odd squares of some files, each of which the last function reads."""
    numbers = [number for part in parts for number in range(part * PER_PART, (part + 1) * PER_PART)]
    return sum(number % 2 for number in numbers if number % 397 != 13)


def test_fused_and_parted_from_run_to_run_records_come_through_once_and_each_function_counts_its_own(
    spark, tmp_path
):
    seen = {}
    for fuse, parts in (("always", [0]), ("never", [1]), ("auto", [2, 3, 4, 5])):
        numbers(tmp_path, parts)
        handle = three(tmp_path).run(spark, settings=settings(tmp_path, fuse=fuse), trigger="100ms")
        until(lambda handle=handle, parts=parts: read(handle, "spell") == count_odds(parts), [handle])
        if fuse == "auto":
            until(lambda handle=handle: handle.status()["fusing"]["groups"] == TOGETHER, [handle])
            numbers(tmp_path, [6])
            every = count_odds([*parts, 6])
            until(lambda handle=handle, every=every: read(handle, "spell") == every, [handle])
        seen[fuse] = handle.status()
        handle.stop()
    texts, unlucky = expect(PER_PART * PARTS)
    assert [text for (text,) in rows(topic(spark, tmp_path, "texts").select("text"))] == texts
    assert len(rows(dead_letters(spark, files(str(tmp_path)), "square"))) == unlucky
    assert rows(dead_letters(spark, files(str(tmp_path)), "spell")) == [
        ('{"square": 25}', "ValueError: no twenty-five")
    ]
    # what was fused wrote no topic between: neither the first file nor the last
    between = {number // PER_PART for (number,) in rows(topic(spark, tmp_path, "squares").select("number"))}
    assert 1 in between and not between & {0, 6}
    assert [one["fusing"]["groups"] for one in seen.values()] == [TOGETHER, [], TOGETHER]
    why = " ".join(seen["auto"]["fusing"]["changes"])
    assert "square and odd run as one query: the topic between them costs" in why
    counts = seen["always"]["functions"]
    assert (counts["square"]["records_read"], counts["square"]["dead_letters"]) == (PER_PART, 1)
    assert counts["odd"]["records_read"] == counts["square"]["records_written"] == PER_PART - 1
    assert (counts["spell"]["records_read"], counts["spell"]["dead_letters"]) == (PER_PART // 2 - 1, 1)
    assert counts["odd"]["fused_with"] == ["square", "spell"]


def test_a_fused_batch_of_dataframes_that_fails_is_run_apart_and_the_fault_is_told_of_its_function(
    spark, tmp_path
):
    pipeline = Pipeline("frames", topics=files(str(tmp_path), files_per_batch=1))
    pipeline.topic("numbers", schema="number bigint")
    shared = {"takes": "dataframe", "schema": "number bigint", "parallelism": 1}
    pipeline.add(lambda frame: frame.selectExpr("number * 2 as number"), name="double", reads="numbers",
                 writes="doubled", **shared)  # fmt: skip
    problem = sf.when(sf.col("number") == 1000, sf.raise_error(sf.lit("no thousand"))).otherwise(
        sf.col("number")
    )
    pipeline.add(lambda frame: frame.select(problem.cast("bigint").alias("number")), name="check",
                 reads="doubled", writes="checked", **shared)  # fmt: skip
    numbers(tmp_path, [0, 1])
    handle = pipeline.run(spark, settings=settings(tmp_path, fuse="always"), trigger="100ms")
    until(lambda: read(handle, "check") == 2 * PER_PART, [handle])
    status = handle.status()
    handle.stop()
    assert rows(topic(spark, tmp_path, "checked").select("number")) == [
        (2 * number,) for number in range(PER_PART)
    ]
    # the first file was fused, and only the second was written to the topic between
    assert topic(spark, tmp_path, "doubled").agg(sf.min("number")).first()[0] == 2 * PER_PART
    assert len(rows(dead_letters(spark, files(str(tmp_path)), "check"))) == PER_PART
    assert rows(dead_letters(spark, files(str(tmp_path)), "double")) == []
    assert status["functions"]["check"]["dead_letters"] == PER_PART
    assert status["functions"]["check"]["records_written"] == PER_PART
