"""The disk under a broker: free space is watched, and the space of deleted messages comes back."""
