// The list of a fleet: searched while one types, sorted and turned without leaving the page.
"use strict";
(function () {
  const form = document.getElementById("question"), place = document.getElementById("rows");
  if (!form) { return; }
  let asked = 0, timer = 0;

  async function load(query, remember) {
    const mine = ++asked;
    place.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(`/fleet/rows?${query}`);
      if (!response.ok) { throw new Error((await response.text()).trim()); }
      const answer = await response.json();
      // an answer that was overtaken by a later question is of no use
      if (mine !== asked) { return; }
      penstock.show(answer);
      if (remember) { window.history.replaceState(null, "", `/fleet?${query}`); }
    } catch (error) {
      if (mine === asked) { penstock.notice(error.message, true); }
    } finally {
      if (mine === asked) { place.removeAttribute("aria-busy"); }
    }
  }

  function ask() { load(new URLSearchParams(new FormData(form)).toString(), true); }

  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  form.elements.show.addEventListener("change", ask);
  form.elements.search.addEventListener("input", function () {
    window.clearTimeout(timer);
    timer = window.setTimeout(ask, 150);
  });
  place.addEventListener("click", function (event) {
    const link = event.target.closest("a.turn");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) { return; }
    event.preventDefault();
    const query = new URL(link.href).searchParams;
    for (const name of ["sort", "order"]) { form.elements[name].value = query.get(name); }
    load(query.toString(), true);
  });
  let known = null;
  penstock.listen("fleet", function (version) {
    if (known !== null && known !== version) { load(window.location.search.slice(1), false); }
    known = version;
  });
})();
