"""Archives: topics in files by topic and date, replayed into topics, and compared with them."""
