"""What providers offer: offers and prices, quotas at the provider, when accounts are polled, drafts of machines."""

__all__ = ["drafts", "offers", "poll_schedule", "provider_quotas"]
