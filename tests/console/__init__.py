"""The web console in a real browser, and against raw requests."""
