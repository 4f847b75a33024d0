"""Functions joined by topics, each a streaming query with a parallelism of its own.

from penstock.pipeline import Pipeline, files, kafka
"""

from __future__ import annotations

from penstock.pipeline.definition import Pipeline
from penstock.pipeline.topics import files, kafka, stream

__all__ = ["Pipeline", "files", "kafka", "stream"]
