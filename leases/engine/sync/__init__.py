"""Updates the database to match providers and hosts: account polls, discovery, suspected machines, orphans, silent agents."""

__all__ = ["discovery", "findings", "identities", "orphan_actions", "orphans", "poll", "silent_agents", "suspects"]
