"""The kind `local_host`: this machine, shared by leases that each get a uid and a home."""
