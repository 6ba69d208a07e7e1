"""Commands, one module per command group."""
