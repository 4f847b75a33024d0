"""The image pipeline of Elastic Pulsar Functions with short triggers: how near does it come to one second?

Images of 96 by 96 pixels are halved and recognised in numpy, at fixed sizes, so that nothing but triggers and
topics differs. Topics are files, files in memory (a tmpfs) or Kafka's. From the topic of the images to the
last one there are two functions, as two queries and fused.
"""

from __future__ import annotations

import json
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from penstock.pipeline import Pipeline, files, kafka
from penstock.pipeline.batches import BatchDone, measure_latency
from penstock.pipeline.topics import Location
from penstock_lab.experiments.images.policies import TARGET_SECONDS, Camera, draw_arrivals
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, tell_row, tell_settings
from penstock_lab.experiments.spark_query import note_failure
from penstock_lab.experiments.splitting import add_connector, start_broker
from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory

if TYPE_CHECKING:
    from penstock_lab.ground.kafka_broker import KafkaBroker

CONF = {"spark.scheduler.mode": "FAIR", "spark.sql.files.minPartitionNum": "1"}
SHAPE = ClusterShape(2, 4, 640, name="penstock bench image-triggers", log_level="OFF", conf=CONF)
RATE = 4.0
"""Images a second, at exponential intervals."""
SIZES = {"store": 1, "resize": 1, "recognise": 2}
TRIGGERS = (0.2, 0.5, 1.0)
MEMORY, FILES, KAFKA = "files in memory", "files", "kafka"
TRANSPORTS = (MEMORY, FILES, KAFKA)
FUSES = ("never", "always")
SECONDS, QUICK_SECONDS, WARM_UP_SECONDS = 20.0, 12.0, 8.0
SETTLE_SECONDS = 5.0
"""Of each run, left out: the first batches start Python."""
WIDTH, LAYERS, OBJECTS = 96, 60, 10
SCHEMA = "number bigint, pixels binary"
SETTINGS: dict[str, object] = {"mode": "observe", "control_socket": False}


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run every trigger on every kind of topic, split and fused; quick has one trigger."""
    seconds = QUICK_SECONDS if extent.quick else SECONDS
    cases = [*product(TRANSPORTS, TRIGGERS[:1] if extent.quick else TRIGGERS, FUSES)]
    rows: list[Row] = []
    failures: list[str] = []
    shape = add_connector(SHAPE)
    with cluster(shape) as spark, scratch_directory() as scratch, start_broker(scratch) as broker:
        progress("warming up")
        for fuse in FUSES:
            run_case(spark, broker, KAFKA, TRIGGERS[0], fuse, WARM_UP_SECONDS)
        for transport, trigger, fuse in cases:
            with note_failure(failures, f"{transport}, {trigger:g} s, fuse {fuse}"):
                batches = run_case(spark, broker, transport, trigger, fuse, seconds)
                rows.append(make_row(transport, trigger, fuse, batches))
                progress(tell_row(rows[-1]))
    return Measurement(rows, summarise(rows), describe_method(seconds), failures, quick=extent.quick)


def run_case(
    spark: SparkSession, broker: KafkaBroker, transport: str, trigger: float, fuse: str, seconds: float
) -> list[BatchDone]:
    """Run the pipeline for some seconds, and return the recogniser's batches without the first ones."""
    with _make_place(broker, transport) as (place, root, send):
        settings = {**SETTINGS, "fuse": fuse, "journal": str(root / "journal.db")}
        checkpoints = str(root / "checkpoints")
        period = f"{trigger * 1000:.0f}ms"
        handle = build_pipeline(place).run(spark, settings=settings, checkpoints=checkpoints, trigger=period)
        camera = make_camera(draw_arrivals((RATE,), SETTLE_SECONDS + seconds), send)
        seen: dict[int, BatchDone] = {}
        try:
            camera.start()
            begun = time.time()
            while time.time() < begun + SETTLE_SECONDS + seconds:
                handle.wait(0.5)
                seen |= {one.batch_id: one for one in handle.batches("recognise")}
        finally:
            camera.stop()
            handle.stop()
    return [one for one in seen.values() if one.end > begun + SETTLE_SECONDS]


@contextmanager
def _make_place(
    broker: KafkaBroker, transport: str
) -> Iterator[tuple[Location, Path, Callable[[int, NDArray[np.uint8]], None]]]:
    """Return where topics lie, a directory for the run, and how an image is sent to the first topic."""
    with _on_disk() if transport == FILES else scratch_directory() as root:
        if transport != KAFKA:
            folder = root / "topics" / "images"
            folder.mkdir(parents=True)
            yield files(str(root / "topics")), root, lambda number, image: send_file(folder, number, image)
            return
        place = kafka(broker.address, prefix=f"{root.name}-")
        names = ("images", "large", "small", "objects", *(f"{name}.dead" for name in SIZES))
        broker.create(*(place.prefix + name for name in names), partitions=1)
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0, "log_level": 0})

        def send(number: int, image: NDArray[np.uint8]) -> None:
            record = {"number": number, "pixels": b64encode(image.tobytes()).decode()}
            producer.produce(f"{place.prefix}images", value=json.dumps(record).encode())
            producer.poll(0)

        yield place, root, send
        producer.flush(10)


@contextmanager
def _on_disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-images-") as directory:
        yield Path(directory)


def send_file(folder: Path, number: int, image: NDArray[np.uint8]) -> None:
    """Write an image into a file of its own; readers never see half of one."""
    hidden = folder / f".{number}.parquet"
    pq.write_table(pa.table({"number": [number], "pixels": [image.tobytes()]}), hidden)
    hidden.rename(folder / f"{number:09d}.parquet")


def make_camera(moments: NDArray[np.float64], send: Callable[[int, NDArray[np.uint8]], None]) -> Camera:
    """Make a camera that sends an image at each of these moments."""
    return Camera(moments, lambda number, _: send(number, make_image(number)))


def make_image(number: int) -> NDArray[np.uint8]:
    """Make an image by its number."""
    return np.random.default_rng(number).integers(0, 256, (WIDTH, WIDTH), dtype=np.uint8)


def build_pipeline(place: Location) -> Pipeline:
    """Build images → large (stored), images → small → objects."""
    pipeline = Pipeline("images", topics=place)
    pipeline.topic("images", schema=SCHEMA)
    pipeline.add(lambda batch: batch, name="store", reads="images", writes="large", schema=SCHEMA,
                 takes="arrow", parallelism=SIZES["store"])  # fmt: skip
    pipeline.add(resize, name="resize", reads="images", writes="small", schema=SCHEMA, takes="arrow",
                 parallelism=SIZES["resize"])  # fmt: skip
    pipeline.add(recognise, name="recognise", reads="small", writes="objects", takes="arrow",
                 schema="number bigint, object bigint", parallelism=SIZES["recognise"])  # fmt: skip
    return pipeline


def resize(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Halve images in both directions."""
    halves = [halve_image(_read_image(one, WIDTH)).tobytes() for one in batch.column("pixels").to_pylist()]
    return pa.RecordBatch.from_arrays(
        [batch.column("number"), pa.array(halves, pa.binary())], names=["number", "pixels"]
    )


def recognise(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Name the object in each image."""
    found = [recognise_image(_read_image(one, WIDTH // 2)) for one in batch.column("pixels").to_pylist()]
    return pa.RecordBatch.from_arrays(
        [batch.column("number"), pa.array(found, pa.int64())], names=["number", "object"]
    )


def _read_image(pixels: bytes, width: int) -> NDArray[np.uint8]:
    return np.frombuffer(pixels, np.uint8).reshape(width, width)


def halve_image(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Take the mean of each square of four pixels."""
    half = len(image) // 2
    small: NDArray[np.uint8] = image.reshape(half, 2, half, 2).mean(axis=(1, 3)).astype(np.uint8)
    return small


def recognise_image(image: NDArray[np.uint8]) -> int:
    """Pass an image through layers that mix neighbouring pixels, and return the strongest of ten outputs."""
    signal = image / 127.5 - 1.0
    for layer in range(LAYERS):
        signal = np.tanh(1.5 * (np.roll(signal, 1, axis=layer % 2) - signal))
    bands = np.linspace(0, len(signal), OBJECTS, endpoint=False).astype(int)
    return int(np.add.reduceat(signal.sum(axis=1), bands).argmax())


def make_row(transport: str, trigger: float, fuse: str, batches: Sequence[BatchDone]) -> Row:
    """Reduce a run to the mean latency of an image and that of its worst batch."""
    late = [one.latency_seconds for one in batches if np.isfinite(one.latency_seconds)]
    return {
        "case": transport,
        "system": "fused" if fuse == "always" else "split",
        "trigger_s": trigger,
        "mean_latency_s": round(measure_latency(batches), 2) if late else None,
        "worst_batch_s": round(max(late), 2) if late else None,
        "batches": len(batches),
        "within_target": bool(late) and measure_latency(batches) <= TARGET_SECONDS,
        "images": round(sum(one.records for one in batches)),
        "settings": tell_settings({**SETTINGS, "fuse": fuse}),
    }


def summarise(rows: Sequence[Row]) -> dict[str, float]:
    """Return the shortest mean latency of each kind of topic, split and fused."""
    found: dict[str, float] = {}
    for row in rows:
        if row["mean_latency_s"] is not None:
            name = f"{row['case'].replace(' ', '_')}_{row['system']}_shortest_s"
            found[name] = min(found.get(name, float("inf")), row["mean_latency_s"])
    return found


def describe_method(seconds: float) -> list[str]:
    """Tell how the figures were measured."""
    return [
        f"{RATE:g} images/s at exponential intervals for {seconds:g} s, after {SETTLE_SECONDS:g} s that do "
        f"not count; sizes are fixed: {', '.join(f'{name} {size}' for name, size in SIZES.items())}",
        "latency counts from an image's arrival in the first topic to the end of the batch that recognised "
        "it, by the moments that records carry; images are mixed by real computing, not recognised",
        "files in memory are file topics on a tmpfs; Spark's own memory stream is no topic of a pipeline, "
        "and real-time mode takes no `foreachBatch`, so neither was tried",
    ]
