"""The catalogue: offers and prices, provider quotas, the schedule of polls, and drafts of machines based on offers."""

__all__ = ["drafts", "offers", "poll_schedule", "provider_quotas"]
