"""Brings the rows in line with providers and hosts: polls of accounts, discovery, suspected machines, orphans."""

__all__ = ["discovery", "orphan_actions", "orphans", "poll", "suspects"]
