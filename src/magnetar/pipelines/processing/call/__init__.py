"""The call of a function of the application, in a process of its own: whatever it does, only its own row fails."""
