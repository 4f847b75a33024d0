"""AuTraScale: a latency target met with few resources, learned from trials."""
