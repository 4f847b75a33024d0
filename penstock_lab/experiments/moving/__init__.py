"""State that moves while a query runs: the key-count, and Nexmark queries."""
