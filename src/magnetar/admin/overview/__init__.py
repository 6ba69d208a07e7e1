"""The state of the whole broker in one answer, for `magnetar top` and the console."""
