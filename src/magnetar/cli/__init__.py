"""The command line. `main` is the entry point, `app` declares the commands; each command group has a module.

`command` runs a command, `rest` talks to a broker, `argument` parses input, `output` prints results. `policies` draws
commands from a table; `doctor` diagnoses problems.
"""
