"""`magnetar doctor`: diagnosing and repairing."""
