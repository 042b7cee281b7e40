"""The engine: claims resources, decides what to build, runs phases step by step, and releases leases.

It works on database rows and sends hints to workers.
"""
