"""Topics and schemas of a cluster."""
