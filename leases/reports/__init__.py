"""Reports, computed from the current rows whenever they are shown. They only read."""
