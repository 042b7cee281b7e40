"""The kind `local_host`: this machine, shared by leases that get an account number and a home each."""
