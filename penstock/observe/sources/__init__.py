"""Sources: the rate offered from outside, the backlog, and which operator reads what."""
