"""A real broker process, killed under the load of an official client: what was acknowledged must be there."""
