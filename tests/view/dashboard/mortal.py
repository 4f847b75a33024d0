"""`python -m tests.view.dashboard.mortal DIRECTORY NAME`: an application in a process that can be killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from penstock.runtime.control import ControlServer
from tests.view.made_up import status

if __name__ == "__main__":
    told = {"status": status(application=sys.argv[2])}
    ControlServer(Path(sys.argv[1]), sys.argv[2], lambda command, request: told)
    time.sleep(600)
