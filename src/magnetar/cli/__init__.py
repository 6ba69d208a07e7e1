"""The command line. `main` is the entry and `app` the commands as users see them; each noun has a file.

Below the nouns are `noun` (how a command is run), `rest` (the way to a broker), `argument` and `answer` (what people
type and read), `policies` (a table that makes commands) and `damage` (what the doctor knows).
"""
