"""Moves of messages by REST: positions that wait, acknowledging them, and redriving letters."""
