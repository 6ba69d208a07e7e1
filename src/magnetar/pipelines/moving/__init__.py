"""Moving messages between topics of one cluster: exactly once, with their acknowledgement."""
