"""The catalogue: offers, prices, provider quotas, the schedule of polls, drafts, and generations of blueprints."""

__all__ = ["drafts", "generations", "offers", "poll_schedule", "provider_quotas"]
