"""The server: sockets, the committer thread, HTTP and the process. The only room that uses asyncio."""
