"""The kind `accelerators`: GPUs, FPGAs, network cards and their parts, found in hosts and leased one by one."""
