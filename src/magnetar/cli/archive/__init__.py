"""`magnetar archive …`: topics to files and back."""
