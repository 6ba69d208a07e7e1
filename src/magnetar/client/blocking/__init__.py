"""The blocking client: asyncio in a thread of its own."""
