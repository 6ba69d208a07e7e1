"""The question before an action that cannot be undone: it names the number of what is touched.

For many it wants that number typed. Escape and a click beside it are a no.
"""

from __future__ import annotations

from nicegui import ui

from magnetar.console.layout.elements import box, button, fault, text
from magnetar.console.options import TYPED_CONFIRMATION_FROM


async def confirmed(title: str, consequence: str, number: int, verb: str) -> bool:
    """Whether the user wants it. `consequence` has the number in words."""
    is_typed = number >= TYPED_CONFIRMATION_FROM
    with ui.dialog() as dialog, box("div", "dialog", role="alertdialog", aria_label=title):
        text("h2", title)
        text("p", consequence)
        if is_typed:
            entered = ui.input(f"Type {number} to confirm").props("outlined dense autofocus autocomplete=off")
        wrong = box("div")

        def confirm() -> None:
            if is_typed and (entered.value or "").strip() != str(number):
                wrong.clear()
                with wrong:
                    fault(f"Type {number} to confirm.")
                return
            dialog.submit(True)

        with box("div", "actions"):
            button("Cancel", lambda: dialog.submit(False), **({} if is_typed else {"autofocus": "autofocus"}))
            button(verb, confirm, "danger")
    dialog.open()
    answer = await dialog
    dialog.delete()
    return answer is True
