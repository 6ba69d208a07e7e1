"""What cannot be read: listed, refused, deleted or skipped."""
