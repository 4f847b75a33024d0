"""The report over all claims: what runs, the runner, tables and pages."""
