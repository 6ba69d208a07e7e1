"""REST handlers, one module per noun of the API."""
