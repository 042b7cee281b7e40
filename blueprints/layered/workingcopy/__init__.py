"""The kind `working_copy`: a git repository at a ref, on a leased host."""
