"""The laboratory: clusters, workloads, experiments and claims that prove Penstock."""
