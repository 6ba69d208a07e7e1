"""Rate limits: token buckets, and who waits for them. They delay, they never drop."""
