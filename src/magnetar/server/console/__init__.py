"""The console process beside a broker."""
