"""A real broker process, killed under the load of an official client: acknowledged messages must survive."""
