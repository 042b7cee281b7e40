"""Records that steps return with their results: erasures, evidence, sensor readings, and refused logins."""

__all__ = ["erasures", "evidence", "logins", "sensors"]
