"""The same loop, manager and policies over a dataflow in virtual time."""
