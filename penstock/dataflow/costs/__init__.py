"""The costs of a micro-batch: model, fit, memory, and the slots that follow from them."""
