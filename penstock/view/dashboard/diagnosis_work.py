"""One diagnosis in a process of its own: `python -m penstock.view.dashboard.diagnosis_work`.

It reads what to do as one line of JSON, and tells how far it is and how it ended in lines of JSON. It ends
with the server that started it: the pipe from which it reads is closed then.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import orjson

from penstock.errors import PenstockError

LONGEST_ANSWER = 4000
MOST_APPLICATIONS = 50


def tell(**said: Any) -> None:
    """Write one line for the server."""
    sys.stdout.buffer.write(orjson.dumps(said) + b"\n")
    sys.stdout.buffer.flush()


def diagnose_to(page: Path, path: Path, span: dict[str, Any]) -> list[dict[str, str]]:
    """Diagnose what is at a path, write the report, and return name and answer of each application."""
    from penstock.diagnose.diagnosis import diagnose_path
    from penstock.diagnose.path.spans import Span
    from penstock.view.diagnosis_page import render_diagnosis_page

    found = diagnose_path(path, Span(**span), lambda said: tell(progress=said), drawn=True)
    tell(progress="drawing the report")
    page.write_text(render_diagnosis_page(found), encoding="utf-8")
    return [
        {"name": one.name or one.application, "answer": one.answer[:LONGEST_ANSWER]}
        for one in found[:MOST_APPLICATIONS]
    ]


def main() -> int:
    """Do what the first line says."""
    asked = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    os.nice(5)
    try:
        answers = diagnose_to(Path(asked["page"]), Path(asked["path"]), asked["span"])
    except PenstockError as error:
        tell(error=str(error).replace(asked["path"], asked["name"]))
        return 1
    except MemoryError:
        tell(error="there is not enough memory for it: `penstock diagnose --memory` takes it in parts")
        return 1
    tell(answers=answers)
    return 0


def _end_with_the_server() -> None:
    # not by way of sys.stdin: Python aborts if a thread is reading from that while it ends
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
