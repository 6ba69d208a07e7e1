"""Statistics of topics and the metrics for Prometheus."""
