"""Penstock: the autopilot for Spark Structured Streaming.

import penstock
autopilot = penstock.attach(spark)
"""

from __future__ import annotations

from penstock.attach import attach
from penstock.autopilot import Autopilot
from penstock.errors import PenstockError

__version__ = "0.1.0"

__all__ = ["Autopilot", "PenstockError", "__version__", "attach"]
