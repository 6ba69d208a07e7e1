"""Soak: many connections and topics under a steady load, consumers that come and go, and a vandal that stays connected.

`python -m tests.soak` runs for ten minutes; `make test` has a short form that counts messages and measures nothing.
"""
