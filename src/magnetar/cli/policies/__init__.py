"""Policy commands of namespaces and topics, from one table."""
