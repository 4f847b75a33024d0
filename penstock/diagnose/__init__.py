"""Where the latency comes from: activity graph, critical participation, summaries and reports."""
