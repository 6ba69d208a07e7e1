"""Replicated subscriptions: positions that follow to remote clusters."""
