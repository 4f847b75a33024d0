"""State that moves while the query runs: bins, plans and strategies, and their placement on executors."""

from penstock.migrate.bins import Bin, BinState, StateView, Worker
from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.plan import Move, Plan, Strategy, plan_from_plain, read_plan
from penstock.migrate.planner import Assignment, PlannerSettings, balance, drain
from penstock.migrate.strategies import schedule

__all__ = [
    "Assignment",
    "Bin",
    "BinState",
    "MigrationSettings",
    "Move",
    "Plan",
    "PlannerSettings",
    "StateView",
    "Strategy",
    "Worker",
    "balance",
    "drain",
    "plan_from_plain",
    "read_plan",
    "schedule",
]
