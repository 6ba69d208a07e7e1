"""The admin REST API as the console uses it: requests, typed answers, and what a cluster can do."""
