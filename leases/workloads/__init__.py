"""Workloads of leases: jobs on leased hosts, the resources that they use, how they end, and their kept output."""
