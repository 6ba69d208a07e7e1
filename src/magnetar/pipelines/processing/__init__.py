"""Processing: a function over the messages of a topic, as a subscription, with retries and dead letters."""
