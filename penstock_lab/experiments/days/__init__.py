"""Days in the simulator: made and recorded loads, policies, rivals and the causal bound side by side."""
