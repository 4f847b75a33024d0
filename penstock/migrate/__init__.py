"""State that moves while the query runs: bins, plans and strategies, and their placement on executors."""

from penstock.dataflow.moves import Bin, Move, Plan, Strategy
from penstock.migrate.bins import BinState, StateView, Worker
from penstock.migrate.plan import read_plan, schedule
from penstock.migrate.planner import Assignment, balance, drain
from penstock.migrate.settings import MigrationSettings

__all__ = [
    "Assignment",
    "Bin",
    "BinState",
    "MigrationSettings",
    "Move",
    "Plan",
    "StateView",
    "Strategy",
    "Worker",
    "balance",
    "drain",
    "read_plan",
    "schedule",
]
