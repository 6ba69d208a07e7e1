"""The codec between messages and columns."""
