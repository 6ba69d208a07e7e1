"""Views: REST replies as text and tables."""
