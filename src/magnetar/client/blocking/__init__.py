"""The blocking client: asyncio in its own thread."""
