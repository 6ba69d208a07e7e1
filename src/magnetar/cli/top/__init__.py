"""`magnetar top`: the whole broker in the terminal."""
