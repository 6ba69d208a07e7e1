"""Subscriptions: cursors, dispatch, redelivery and dead letters."""
