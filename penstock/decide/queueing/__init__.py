"""The queueing policy: the fewest instances that meet a latency target."""
