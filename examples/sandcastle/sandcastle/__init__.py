"""Sandcastles: a change that is proposed, applied and published where it can be looked at."""
