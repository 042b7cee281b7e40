"""Orders, each of which is worked on a leased machine."""
