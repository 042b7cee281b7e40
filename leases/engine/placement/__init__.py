"""Decides which resource a pending lease may use: constraints, claims, the queue, quotas, budgets, groups."""

__all__ = ["assignment", "budget_check", "budgets", "claims", "constraints", "limits", "pending", "quotas"]
