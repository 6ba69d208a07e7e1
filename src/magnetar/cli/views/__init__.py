"""Views of REST answers on a screen."""
