"""The kernel: clock, errors, state tables, encryption, logging. It imports no other package of ours."""
