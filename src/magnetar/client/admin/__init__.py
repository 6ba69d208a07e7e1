"""Administration of topics and schemas in a cluster."""
