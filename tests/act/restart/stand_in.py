"""A stand-in for a driver: counts in a file, which is its checkpoint, and behaves as it is told.

Its behaviour depends on the memory that it is given: `bad` memory makes it end with code 9 before a batch,
`stuck` lets it hang, `deaf` lets it ignore a stop.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from penstock.act.restart.channel import find_own_channel

KEY = "spark.executor.memory"


def main() -> int:
    settings, checkpoint, plan = json.loads(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    channel = find_own_channel()
    assert channel is not None
    memory = settings.get(KEY, "1g")
    with checkpoint.open("a") as log:
        log.write(f"start {memory}\n")
    channel.say(
        kind="attached", application="app", name="stand-in", settings=plan.get("fixed", {KEY: memory})
    )
    for message in plan.get("says", ()):
        channel.say(**message)
    for line in plan.get("writes", ()):
        channel.write(line.encode())
    if memory in plan.get("bad", ()):
        return 9
    stopping = threading.Event()

    def listen() -> None:
        for message in channel.messages():
            if message["kind"] == "stop" and memory not in plan.get("deaf", ()):
                stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    while memory in plan.get("stuck", ()) and not stopping.is_set():
        time.sleep(0.01)
    asks = plan.get("asks", {})
    for number in range(plan.get("batches", 1000)):
        if stopping.wait(0.02):
            channel.say(kind="stopped")
            return 0
        with checkpoint.open("a") as log:
            log.write(f"batch {memory}\n")
        channel.say(kind="batch", at=time.time(), idle=False)
        if number == 2 and memory in asks:
            wanted = {KEY: asks[memory], **plan.get("also", {})}
            channel.say(kind="restart", action=plan["action"], settings=wanted)
    channel.say(kind="statuses", statuses=[{"application": "app"}])
    return plan.get("code", 0)


if __name__ == "__main__":
    sys.exit(main())
