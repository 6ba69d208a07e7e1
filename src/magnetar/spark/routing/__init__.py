"""Rows of one stream to several targets: the split by rules, and the pipeline that writes every target exactly once."""
