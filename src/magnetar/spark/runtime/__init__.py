"""The Spark runtime: Java, the JVM gateway, settings, shipping to executors, worker processes."""
