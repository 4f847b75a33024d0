"""Arrivals, the camera, and the rows of the image pipeline's benchmark, without a cluster."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock_lab.claims.pulsar import judge_ratio
from penstock_lab.experiments.images.policies import (
    ImagesSeen,
    build_pipeline,
    count_seconds_over,
    describe_method,
    draw_arrivals,
    make_camera,
    make_row,
    read_recognised,
    serve_paced,
)
from penstock_lab.experiments.measurement import summarise_rows


def test_arrivals_have_each_stretch_s_rate_and_exponential_gaps():
    moments = draw_arrivals((5.0, 50.0), 200.0)
    assert (np.diff(moments) >= 0).all() and moments[-1] < 400
    assert (moments < 200).sum() == pytest.approx(1000, rel=0.1)
    assert (moments >= 200).sum() == pytest.approx(10_000, rel=0.1)
    gaps = np.diff(moments[moments >= 200])
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.1)


def test_the_camera_writes_every_image_once(tmp_path):
    camera = make_camera(tmp_path / "images", np.linspace(0.0, 0.9, 30))
    camera.start()
    camera.join(timeout=20)
    tables = [pq.read_table(file) for file in sorted((tmp_path / "images").glob("[0-9]*.parquet"))]
    assert pa.concat_tables(tables).column("number").to_pylist() == list(range(30))
    assert len(tables) == 10 and not list((tmp_path / "images").glob(".*.parquet"))


def test_a_camera_that_is_stopped_takes_no_more_images(tmp_path):
    camera = make_camera(tmp_path / "images", np.array([0.0] * 3 + [60.0]))
    camera.start()
    camera.stop()
    assert not camera.is_alive() and len(list((tmp_path / "images").iterdir())) <= 1


def test_a_camera_that_was_never_started_can_be_stopped(tmp_path):
    camera = make_camera(tmp_path / "images", np.zeros(1))
    camera.stop()
    assert not camera.is_alive() and not list(tmp_path.rglob("*.parquet"))


def test_functions_take_the_time_that_follows_from_the_images():
    batch = pa.RecordBatch.from_pydict({"number": [1, 2, 3], "arrived": [0.0, 0.0, 0.0]})
    wanted = sum(np.random.default_rng([number, 11]).gamma(4, 0.02 / 4) for number in (1, 2, 3))
    begun = time.monotonic()
    assert serve_paced(0.02)(batch) is batch
    assert time.monotonic() - begun >= 0.9 * wanted


def a_run(responses, instances=(3, 5), unserved=(), ended=100.0):
    arrived = np.arange(len(responses), dtype=float)
    offered = len(responses) + len(unserved)
    return ImagesSeen(arrived, arrived + np.array(responses), instances, offered, np.array(unserved), ended)


def test_a_row_has_response_times_as_measured():
    row = make_row("queueing", a_run([0.5, 0.5, 6.5]))
    assert (row["mean_response_s"], row["peak_response_s"], row["mean_instances"]) == (2.5, 6.5, 4.0)
    assert (row["seconds_over_target"], row["seconds_over_5_s"]) == (1, 1)
    assert make_row("ds2", a_run([]))["mean_response_s"] is None


def test_images_that_still_wait_count_with_what_they_have_waited():
    row = make_row("threshold", a_run([1.0], unserved=[60.0, 90.0]))
    assert (row["mean_response_s"], row["peak_response_s"]) == (17.0, 40.0)
    assert (row["images"], row["recognised"]) == (3, 1)


def test_seconds_over_the_target_go_by_arrivals():
    arrived, times = np.array([0.1, 0.9, 1.5, 2.0]), np.array([0.5, 3.0, 0.2, 1.5])
    assert count_seconds_over(arrived, times, 1.0) == 2


def test_the_target_compares_queueing_with_threshold():
    rows = [make_row("threshold", a_run([4.0])), make_row("queueing", a_run([1.0]))]
    assert judge_ratio(rows).met and not judge_ratio(rows[:1]).met
    assert summarise_rows(rows, "mean_response_s")["queueing_mean_response_s"] == 1.0
    assert "2, 6 images/s, 30 s each" in describe_method((2.0, 6.0), 30.0)[0]


def published(topic, batch, numbers):
    directory = topic / f"recognise-1a2b3c4d-{batch:09d}"
    directory.mkdir(parents=True)
    pq.write_table(
        pa.table({"number": numbers, "arrived": [float(n) for n in numbers]}), directory / "0.parquet"
    )


def test_an_image_is_finished_when_its_batch_is_published(tmp_path):
    published(tmp_path, 0, [0, 1])
    published(tmp_path, 12, [2])
    published(tmp_path, 13, [3])
    numbers, arrived, finished = read_recognised(tmp_path, {0: 5.0, 12: 9.0})
    seen = {n: (a, f) for n, a, f in zip(numbers.tolist(), arrived.tolist(), finished.tolist(), strict=True)}
    assert seen == {0: (0.0, 5.0), 1: (1.0, 5.0), 2: (2.0, 9.0)}


def test_the_graph_is_that_of_the_paper(tmp_path):
    layout = build_pipeline(tmp_path).check()
    assert layout.readers("images") == ("store", "resize")
    assert layout.writers("small") == ("resize",)
    assert [array.size for array in read_recognised(tmp_path, {})] == [0, 0, 0]
