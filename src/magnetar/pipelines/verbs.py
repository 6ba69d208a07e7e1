"""Registered verbs. A new one needs its own folder and a line here."""

from __future__ import annotations

from magnetar.pipelines.service import DeclaredVerb
from magnetar.pipelines.replicate.verb import Replicate

VERBS: tuple[DeclaredVerb, ...] = (Replicate.declared_by,)
