"""Headers that browsers obey, for every answer of the HTTP port: no guess of a type, no other site, no copy, no frame.

There are no CORS headers: pages of other sites read nothing. Knows no answer.
"""

from __future__ import annotations

ANSWER_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
"""Unless an answer has its own, as the front page has a stricter policy."""
