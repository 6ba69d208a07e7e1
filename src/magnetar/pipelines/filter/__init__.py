"""Filters: the messages that a `where` condition keeps, evaluated by Spark."""
