// The drawer of the navigation on a phone, and the key of the search. Everything else is HTML.
(() => {
  const setDrawer = (isOpen) => {
    document.body.classList.toggle("drawer-open", isOpen);
    document.getElementById("menu")?.setAttribute("aria-expanded", String(isOpen));
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#menu")) setDrawer(!document.body.classList.contains("drawer-open"));
    else if (!event.target.closest?.("#navigation")) setDrawer(false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.body.classList.contains("drawer-open")) {
      setDrawer(false);
      document.getElementById("menu")?.focus();
    }
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName ?? "");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      document.getElementById("search")?.focus();
    }
  });
})();
