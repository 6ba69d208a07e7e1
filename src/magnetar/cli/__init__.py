"""The command line: one noun per file, no logic. `main` is the entry, `app` the commands as users see them."""
