"""The kind `gce`: machines at Google Compute Engine."""
