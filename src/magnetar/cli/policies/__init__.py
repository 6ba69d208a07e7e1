"""Policy commands of namespaces, topics and subscriptions, drawn from one table."""
