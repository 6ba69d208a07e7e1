"""`magnetar tour`: two clusters, failing consumers, dead letters, stuck replication and a redrive, in two minutes."""
