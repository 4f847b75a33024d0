// The page of state: what the colour of bins means, and moves that are planned, looked at, then begun.
"use strict";
(function () {
  const map = document.getElementById("map"), address = map.dataset.address;
  const colours = document.querySelectorAll("[data-colour]");
  colours.forEach((button) => button.addEventListener("click", function () {
    map.dataset.measure = button.dataset.colour;
    colours.forEach((one) => one.setAttribute("aria-pressed", one === button));
  }));

  async function order(button) {
    const command = button.dataset.order, executor = button.dataset.executor;
    const strategy = document.getElementById("strategy").value || null;
    button.disabled = true;
    try {
      if (command === "stop") {
        const told = await penstock.send(`${address}/stop`);
        penstock.notice(told.stopping ? "It stops at the next batch boundary." : "No migration is under way.");
        return;
      }
      const wanted = { command, strategy, executor };
      const planned = await penstock.send(`${address}/plan`, wanted);
      const body = penstock.make("div", {});
      body.innerHTML = planned.plans;
      const title = command === "drain" ? `Take all state off executor ${executor}?` : "Spread state evenly?";
      if (!await penstock.confirm(title, body, planned.count ? "Move" : null)) { return; }
      const told = await penstock.send(`${address}/start`, wanted);
      penstock.notice(told.started ? "The moving has begun." : "Nothing has to move any more.");
    } catch (error) {
      penstock.notice(error.message, true);
    } finally {
      button.disabled = false;
    }
  }

  document.addEventListener("click", function (event) {
    const button = event.target.closest("[data-order]");
    if (button) { order(button); }
  });
})();
