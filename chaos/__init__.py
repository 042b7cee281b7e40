"""Chaos: an installation of its own, under load and faults, and the proof that it kept its promises. Not shipped."""
