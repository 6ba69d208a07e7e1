"""The question before an action that cannot be undone: it names the number of what is touched.

For many it wants that number typed. Escape and a click beside it are a no.
"""

from __future__ import annotations

from nicegui import ui

from magnetar.console.layout.elements import box, text
from magnetar.console.options import TYPED_CONFIRMATION_FROM


async def confirmed(title: str, consequence: str, number: int, verb: str) -> bool:
    """Whether the user wants it. `consequence` has the number in words."""
    with ui.dialog() as dialog, box("div", "dialog", role="alertdialog", aria_label=title):
        text("h2", title)
        text("p", consequence)
        is_typed = number >= TYPED_CONFIRMATION_FROM
        if is_typed:
            entered = ui.input(f"Type {number} to confirm").props("outlined dense autofocus autocomplete=off")
        with box("div", "actions"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props(
                "flat no-caps" + " autofocus" * (not is_typed)
            )
            action = ui.button(verb, on_click=lambda: dialog.submit(True)).props("no-caps unelevated color=negative")
            if is_typed:
                action.bind_enabled_from(entered, "value", lambda value: (value or "").strip() == str(number))
    dialog.open()
    answer = await dialog
    dialog.delete()
    return answer is True
