"""Keeps what steps report beside their results: erasures of disks, attestation evidence, and what sensors measured."""

__all__ = ["erasures", "evidence", "sensors"]
