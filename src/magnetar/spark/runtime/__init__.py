"""Starting Spark: Java, the JVM, settings, shipping to executors, worker processes."""
