"""The ground for trials: local clusters, hosts with real limits, a Kafka broker, and the use of processes."""
