"""The broker: topics, subscriptions and everything that is decided about messages. No I/O, no clock, no threads."""
