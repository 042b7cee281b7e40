"""The kind `ssh_host`: hosts registered by hand, reached over SSH with pinned host keys."""
