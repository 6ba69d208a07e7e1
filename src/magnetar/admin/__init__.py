"""HTTP for operators and for clients with an http:// address: REST v2, lookup, metrics. Thin: parse, broker, JSON."""
