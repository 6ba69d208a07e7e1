"""The log: a closed set of events, one line each, as text or JSON, bounded in length and in number."""
