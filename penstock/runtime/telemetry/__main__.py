"""`python -m penstock.runtime.telemetry` prints the page of all metrics."""

import sys

from penstock.runtime.telemetry.reference import write_reference

sys.stdout.write(write_reference())
