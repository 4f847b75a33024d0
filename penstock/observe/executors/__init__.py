"""Executors: their memory, CPU and losses, and what is free on their hosts."""
