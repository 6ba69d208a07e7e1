"""Everything that has a name: tenants, namespaces, topics, their records, policies and auto-creation rules."""
