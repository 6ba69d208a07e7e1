"""Registered verbs. A new one needs its own folder and a line here; those of declared pipelines are in
`declared.runners`."""

from __future__ import annotations

from magnetar.pipelines.declared.verb import DeclaredRuns
from magnetar.pipelines.replicate.verb import Replicate
from magnetar.pipelines.service import DeclaredVerb

VERBS: tuple[DeclaredVerb, ...] = (Replicate.declared_by, DeclaredRuns)
