"""Declared pipelines in the pipelines process: which run, in which threads, and what is reported of them."""
