"""Penstock: the autopilot for Spark Structured Streaming.

import penstock
autopilot = penstock.attach(spark)
"""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.observe.services.board import publish as publish_service
from penstock.runtime.attach import attach
from penstock.runtime.autopilot import Autopilot

__version__ = "0.1.0"

__all__ = ["Autopilot", "PenstockError", "__version__", "attach", "publish_service"]
