"""`--secure DIR`: a folder with all that a secured broker needs, made at its first start."""
