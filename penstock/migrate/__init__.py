"""State that moves while the query runs: bins, plans and strategies, and their placement on executors."""
