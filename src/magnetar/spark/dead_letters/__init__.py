"""Dead letters as a DataFrame: their topics, what waits in them, one row per letter, decoded payloads, purging."""
