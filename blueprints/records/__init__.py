"""What steps report beside their results, to be kept: erasures of disks, attestation evidence, and sensor readings."""

__all__ = ["erasures", "evidence", "sensors"]
