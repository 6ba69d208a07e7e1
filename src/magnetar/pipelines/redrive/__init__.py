"""Redrive: dead letters go back to where they failed, filtered and edited on the way."""
