"""The web console: a process of its own that shows a cluster, Magnetar or Apache Pulsar, by its REST API alone."""
