"""The kind `gce`: machines on Google Compute Engine."""
