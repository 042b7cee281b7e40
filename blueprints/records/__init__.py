"""What steps report beside their results, to be kept: erasures, evidence, sensor readings, and refused logins."""

__all__ = ["erasures", "evidence", "logins", "sensors"]
