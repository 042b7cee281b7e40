"""What providers and hosts say that there is: polls of accounts, discovery, machines in doubt, orphans."""

__all__ = ["discovery", "orphan_actions", "orphans", "poll", "suspects"]
