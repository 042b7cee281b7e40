"""Reports that are computed from the current rows each time they are shown. They change nothing."""
