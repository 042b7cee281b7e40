"""Measurements: every figure with the ratio to a floor or a peer of the same run."""
