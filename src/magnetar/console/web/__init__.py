"""What the console shows to browsers before any page: guard, sessions, login, the limits of both."""
