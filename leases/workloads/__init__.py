"""Workloads of leases: commands that run as jobs on leased hosts, what they use, how they end, and their output."""
