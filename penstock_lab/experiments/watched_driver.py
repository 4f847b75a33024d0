"""What a driver pays for being watched: the page of its application open against closed, in one run.

The autopilot stays attached and a dashboard runs beside it all the while. It asks a driver for its status
only while somebody looks, so that opening and closing the page is what is alternated. The driver's processor
time for a record is compared: what the dashboard and a browser take of their own is no cost of the driver,
and `penstock dashboard` may run on another machine's core.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock_lab.experiments.measurement import Extent, Measurement, Progress
from penstock_lab.experiments.overhead import SHAPE, Block, Length, Sides, alternate, set_up, tell_ratio
from penstock_lab.experiments.spark_query import attach_autopilot
from penstock_lab.ground.dashboard_server import follow_events, serve_dashboard
from penstock_lab.ground.spark_cluster import cluster, scratch_directory

OPEN, CLOSED = "page open", "page closed"
SETTLE_SECONDS = 3.0
"""The first answer to a page that is opened holds the whole past."""
QUICK = Length(warm_up_seconds=30.0, measured_seconds=10.0, quads=1)
FULL = Length(quads=4)
FIGURES = {
    "driver_overhead_ratio": lambda block: block.driver_seconds,
    "driver_throughput_ratio": lambda block: block.records_per_second,
}


def measure_driver(extent: Extent, progress: Progress) -> Measurement:
    """Alternate the page open and closed over one application; quick has too few blocks for an interval."""
    with (
        cluster(SHAPE) as spark,
        scratch_directory() as directory,
        serve_dashboard(directory) as (_, address),
    ):
        page = f"{address}applications/{spark.sparkContext.applicationId}/events"
        sides = Sides(OPEN, CLOSED, lambda: follow_events(page), SETTLE_SECONDS)
        settings = {**set_up(directory), "runtime_directory": str(directory / "run")}
        with attach_autopilot(spark, settings):
            return compare_driver(
                alternate(spark, directory, sides, QUICK if extent.quick else FULL, progress)
            )


def compare_driver(blocks: Sequence[Block]) -> Measurement:
    """Reduce the blocks to ratios of open to closed, a row for each."""
    summary: dict[str, float] = {}
    for name, figure in FIGURES.items():
        summary |= tell_ratio(name, blocks, OPEN, figure)
    rows = [
        {
            "case": f"{name.replace('_', ' ')}, {OPEN} over {CLOSED}",
            "ratio": round(summary[name], 4),
            "ratio_low": round(summary[f"{name}_low"], 4),
            "ratio_high": round(summary[f"{name}_high"], 4),
            "blocks": len(blocks),
        }
        for name in FIGURES
    ]
    return Measurement(rows, summary)
