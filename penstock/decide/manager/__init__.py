"""The scaling manager: guardrails between a policy's proposal and an action."""
