"""Commands, one module per noun."""
