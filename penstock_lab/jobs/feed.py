"""Feeds one job, in a process of its own, so that making records does not disturb the job's driver.

    python -m penstock_lab.jobs.feed small-files-lookup DIRECTORY --rate constant:60 --seconds 120

How far it has got is in DIRECTORY/feed.json, replaced after every slice.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

import orjson

from penstock.errors import PenstockError
from penstock.fleet.files import write_whole
from penstock_lab.jobs.catalog import OrdinaryJob, find_job
from penstock_lab.jobs.contents import Fed
from penstock_lab.jobs.feeds import Sent, pace_by_clock, run_feed, send_at_once
from penstock_lab.jobs.places import RunPlace

WRONG = 2


def feed_job(
    job: OrdinaryJob, place: RunPlace, fed: Fed, start: float | None = None, at_once: bool = False
) -> None:
    """Send a job's input, from a moment on (default: now) or at once."""
    job.prepare(place)
    began = time.time() if start is None else start
    pace = send_at_once if at_once else pace_by_clock(began)
    sent = Sent(0, 0.0, 0.0)
    _report(place, sent, fed, began)
    for sent in run_feed(job.content, fed, job.source.every_seconds, job.outlets(place), pace):
        _report(place, sent, fed, began)
    _report(place, sent, fed, began, ended=True)


def _report(place: RunPlace, sent: Sent, fed: Fed, began: float, ended: bool = False) -> None:
    state = {**asdict(sent), "of_records": fed.records, "began": began, "ended": ended}
    write_whole(place.feed_state, orjson.dumps(state))


def main() -> int:
    """Read the command line, and feed."""
    args = _parser().parse_args()
    try:
        place = RunPlace(args.directory, args.brokers, args.service)
        feed_job(find_job(args.job), place, Fed(args.rate, args.seconds, args.seed), args.start, args.at_once)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rate", required=True, help="a rate profile, such as constant:60")
    parser.add_argument("--seconds", type=float, required=True, help="length of the feed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=float, help="when to begin, in seconds since the epoch")
    parser.add_argument("--at-once", action="store_true", help="send everything now, as a backlog")
    parser.add_argument("--brokers", default="", help="Kafka's address")
    parser.add_argument("--service", default="", help="address of the lookup service")
    return parser


if __name__ == "__main__":
    sys.exit(main())
