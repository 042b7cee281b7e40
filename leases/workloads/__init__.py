"""Workloads of leases: jobs on leased hosts, the resources that they use, their end, and their stored output."""
