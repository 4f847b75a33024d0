"""The exceptions that Penstock raises on purpose.

    PenstockError
     ├── BadInput              a user gave something that cannot be used (exit 2)
     │    ├── BadGraph         a cycle, an unknown operator, a duplicate edge
     │    ├── BadMetrics       NaN, negative, duplicated or unknown instances
     │    ├── BadRecording     a rate or topology file: names the file and the line
     │    └── BadSettings      an unknown or out-of-range setting: names the key
     ├── Unsupported           this Spark, or this kind of session, cannot be steered
     ├── NotFound              no such application, action or executor
     ├── SparkUnavailable      Spark did not answer, or its context has stopped
     ├── ActionFailed          an action was tried and did not take effect
     ├── NotLeading            another controller leads: this one may change nothing
     └── JournalUnavailable    the journal cannot be read or written

Foreign errors (Py4J, SQLAlchemy, OS) are translated where they enter and never reach a caller raw.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Anything that Penstock raises on purpose."""


class BadInput(PenstockError):
    """A user gave something that cannot be used; the message names the place."""


class BadGraph(BadInput):
    """A dataflow graph with a cycle, an unknown operator or a duplicate edge."""


class BadMetrics(BadInput):
    """Metrics that are NaN, negative, duplicated or of an unknown operator."""


class BadRecording(BadInput):
    """A recorded file that cannot be read; the message names file and line."""


class BadSettings(BadInput):
    """A setting that is unknown or out of range; the message names the key."""


class Unsupported(PenstockError):
    """This Spark, or this kind of session, cannot be steered."""


class NotFound(PenstockError):
    """No such application, action or executor."""


class SparkUnavailable(PenstockError):
    """Spark did not answer, or its context has stopped."""


class ActionFailed(PenstockError):
    """An action was tried and did not take effect."""


class NotLeading(PenstockError):
    """Another controller leads: this one may change nothing."""


class JournalUnavailable(PenstockError):
    """The journal cannot be read or written."""
