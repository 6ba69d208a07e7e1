"""The pages, one module each: what is requested, and how it is shown."""
