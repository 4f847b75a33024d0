"""Images that are really computed on, the pipeline over them, and rows by trigger and topics."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline import files, kafka
from penstock.pipeline.batches import BatchDone, InstanceWork
from penstock.pipeline.fusing import find_chains
from penstock_lab.experiments.images.triggers import (
    WIDTH,
    build_pipeline,
    describe_method,
    halve_image,
    make_camera,
    make_image,
    make_row,
    recognise,
    resize,
    send_file,
    summarise,
)


def a_batch(end, records, entered):
    return BatchDone(
        "recognise", int(end), end - 1, end, 1, (InstanceWork(0, records, records, 0, 0.1),), entered
    )


def test_images_are_halved_by_the_mean_of_four_pixels_and_named_by_their_pixels():
    assert halve_image(np.array([[0, 4], [8, 12]], np.uint8)).tolist() == [[6]]
    images = [make_image(number) for number in range(20)]
    pixels = pa.array([image.tobytes() for image in images], pa.binary())
    small = resize(pa.RecordBatch.from_arrays([pa.array(range(20)), pixels], names=["number", "pixels"]))
    assert {len(one) for one in small.column("pixels").to_pylist()} == {(WIDTH // 2) ** 2}
    found = recognise(small)
    assert found.column("number").to_pylist() == list(range(20))
    assert len(set(found.column("object").to_pylist())) > 1
    assert recognise(small).equals(found)


def test_resize_and_recognise_may_be_fused_and_the_images_are_shared_with_the_store():
    for place in (files("topics"), kafka("broker:1")):
        assert find_chains(build_pipeline(place)) == (("resize", "recognise"),)


def test_the_camera_sends_every_image_once_and_whole(tmp_path):
    camera = make_camera(np.linspace(0.0, 0.05, 5), lambda number, image: send_file(tmp_path, number, image))
    camera.start()
    camera.join(timeout=20)
    tables = [pq.read_table(file).to_pylist()[0] for file in sorted(tmp_path.glob("[0-9]*.parquet"))]
    assert [one["number"] for one in tables] == list(range(5))
    assert tables[3]["pixels"] == make_image(3).tobytes()


def test_a_row_has_the_mean_over_images_its_trigger_and_its_settings():
    row = make_row("kafka", 0.2, "always", [a_batch(10.0, 3, 9.0), a_batch(12.0, 1, 9.0)])
    # three images of 1 s and one of 3 s
    assert (row["mean_latency_s"], row["worst_batch_s"], row["images"]) == (1.5, 3.0, 4)
    assert row["within_target"] is False and row["settings"] == "mode=observe, fuse=always"
    empty = make_row("kafka", 0.5, "never", [])
    assert empty["mean_latency_s"] is None and empty["within_target"] is False
    assert summarise([row, {**row, "mean_latency_s": 1.2}, empty]) == {"kafka_fused_shortest_s": 1.2}
    assert "fixed" in describe_method(5.0)[0]
