"""The kind `storage`: a folder with a size limit on a leased host."""
