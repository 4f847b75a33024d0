"""A supervisor under faults: the trial, the supervisor's process and the driver that it starts."""
