"""What commands need of the role of their client, and the end of what a role may no longer do."""
