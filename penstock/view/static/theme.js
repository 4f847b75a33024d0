// Light or dark: as the system says, until the user says otherwise. Loaded first, so that nothing flashes.
"use strict";
(function () {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  function chosen() {
    try { return window.localStorage.getItem("penstock-theme"); } catch { return null; }
  }
  function dress() {
    root.dataset.theme = chosen() || (system.matches ? "dark" : "light");
    document.dispatchEvent(new CustomEvent("penstock:theme"));
  }
  dress();
  system.addEventListener("change", dress);
  document.addEventListener("DOMContentLoaded", function () {
    document.getElementById("theme").addEventListener("click", function () {
      const other = root.dataset.theme === "dark" ? "light" : "dark";
      try { window.localStorage.setItem("penstock-theme", other); } catch { /* kept for this page only */ }
      root.dataset.theme = other;
      document.dispatchEvent(new CustomEvent("penstock:theme"));
    });
  });
})();
