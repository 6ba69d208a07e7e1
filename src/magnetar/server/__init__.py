"""The only asyncio: sockets, the committer thread, HTTP, and the life of the process."""
