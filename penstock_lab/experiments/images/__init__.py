"""The image pipeline of Elastic Pulsar Functions: under each policy, and with short triggers."""
