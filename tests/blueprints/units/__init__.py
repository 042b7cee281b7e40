"""Tests of workloads as systemd units."""
