"""Rates of pipelines and single queries as rows and ratios, without a cluster."""

import pyarrow.parquet as pq
import pytest

from penstock.pipeline import files, kafka
from penstock_lab.experiments.splitting import (
    ORDER,
    TRANSFORMS,
    SplitAmount,
    build_pipeline,
    describe_method,
    fill_files,
    make_rows,
    make_texts,
    summarise_costs,
)

RATES = dict(zip(ORDER, ([1000.0, 1200.0, 800.0], [500.0], [800.0], [600.0], [100.0], [480.0]), strict=True))


def test_the_cost_of_splitting_is_the_ratio_to_one_query_on_the_same_topics():
    rows = {row["system"]: row for row in make_rows(RATES)}
    assert rows["one query, files"]["records_per_second"] == 1000
    assert rows["pipeline, files"]["cost_ratio"] == 2.0
    assert rows["pipeline, kafka"]["cost_ratio"] == 6.0
    assert rows["fused pipeline, kafka"]["cost_ratio"] == 1.25
    assert rows["fused pipeline, kafka"]["settings"] == "mode=observe, fuse=always"
    assert summarise_costs(list(rows.values()))["fused_pipeline_kafka_cost_ratio"] == 1.25


def test_what_was_not_measured_is_not_shown():
    assert make_rows({system: [] for system in ORDER}) == []
    assert make_rows({"pipeline, files": [5.0]})[0]["cost_ratio"] is None


@pytest.mark.parametrize("place", [files("topics"), kafka("host:1")])
def test_the_pipeline_has_the_three_transforms_in_their_order(place):
    layout = build_pipeline(place).check()
    assert layout.functions == tuple(TRANSFORMS)
    assert layout.sources == ("raw",)


def test_records_are_shared_out_over_files(tmp_path):
    fill_files(tmp_path / "raw", SplitAmount(50, 20, 1))
    tables = [pq.read_table(file) for file in sorted((tmp_path / "raw").iterdir())]
    assert [len(table) for table in tables] == [10] * 5
    assert make_texts(3, 4).to_pylist() == [{"number": 3, "text": "The Record 000000003 And What It SAYS"}]
    assert "50 records" in describe_method(SplitAmount(50, 20, 1))[0]
