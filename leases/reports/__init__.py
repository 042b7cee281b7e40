"""Reports that are computed when they are shown, from the rows as they are now. They read, and change nothing."""
