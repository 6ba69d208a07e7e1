"""The check of a data folder at rest: every record, run, cursor and index, and what repairs those that are damaged."""
