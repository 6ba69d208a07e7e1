"""The web application: requests, the route table, errors."""
