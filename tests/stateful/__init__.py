"""Hypothesis machines: the log against a list, the host against a model."""
