// What all live pages share: following the server's events, patching what changed, and giving orders.
"use strict";
const penstock = (function () {
  const live = document.getElementById("live");
  const listeners = {};

  function tell(state, text) { live.dataset.state = state; live.textContent = text; }

  // Make `old` look like `fresh` and touch nothing that is the same: focus, selection and scrolling stay.
  function patch(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
      old.replaceWith(fresh);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) { old.nodeValue = fresh.nodeValue; }
      return;
    }
    for (const name of old.getAttributeNames()) {
      if (!fresh.hasAttribute(name) && name !== "open") { old.removeAttribute(name); }
    }
    for (const name of fresh.getAttributeNames()) {
      if (old.getAttribute(name) !== fresh.getAttribute(name)) { old.setAttribute(name, fresh.getAttribute(name)); }
    }
    patchChildren(old, fresh);
  }

  function patchChildren(old, fresh) {
    const wanted = Array.from(fresh.childNodes);
    wanted.forEach(function (child, number) {
      const known = child.id ? Array.from(old.children).find((one) => one.id === child.id) : null;
      const here = old.childNodes[number];
      if (known && known !== here) { old.insertBefore(known, here || null); }
      const present = old.childNodes[number];
      if (present) { patch(present, child); } else { old.append(child); }
    });
    while (old.childNodes.length > wanted.length) { old.lastChild.remove(); }
  }

  function show(parts) {
    for (const [name, value] of Object.entries(parts)) {
      if (typeof value !== "string") {
        (listeners[name] || []).forEach((one) => one(value));
        continue;
      }
      const place = document.getElementById(name);
      if (place) {
        const fresh = place.cloneNode(false);
        fresh.innerHTML = value;
        patchChildren(place, fresh);
      }
    }
    document.dispatchEvent(new CustomEvent("penstock:shown"));
  }

  // Follow the events of an address; the browser comes back by itself when the server does.
  function follow(address) {
    const events = new EventSource(address);
    events.onopen = () => tell("live", "live");
    events.onerror = () => tell("lost", "no connection");
    events.onmessage = (event) => { tell("live", "live"); show(JSON.parse(event.data)); };
    window.addEventListener("pagehide", () => events.close());
    window.addEventListener("pageshow", (event) => { if (event.persisted) { window.location.reload(); } });
    return events;
  }

  // Hear of data that is no markup, by the name that the server gives it.
  function listen(name, heard) { (listeners[name] = listeners[name] || []).push(heard); }

  function notice(text, bad) {
    const place = document.getElementById("notice");
    place.textContent = text;
    place.dataset.bad = bad ? "yes" : "no";
    place.hidden = false;
    window.clearTimeout(notice.timer);
    notice.timer = window.setTimeout(() => { place.hidden = true; }, 8000);
  }

  // Ask before an order is given; `body` is an element with fields, if the order has any.
  function confirm(title, body, word) {
    const dialog = document.getElementById("dialog");
    document.getElementById("dialog-title").textContent = title;
    document.getElementById("dialog-body").replaceChildren(...(body ? [body] : []));
    document.getElementById("dialog-yes").textContent = word || "Do it";
    document.getElementById("dialog-yes").hidden = word === null;
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((done) => {
      dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
    });
  }

  // Give an order: the answer of the server, or its refusal as an Error.
  async function send(address, body) {
    const token = document.querySelector("meta[name=csrf]").content;
    const plain = !(body instanceof Blob);
    const response = await fetch(address, {
      method: "POST",
      headers: { "x-penstock-csrf": token, "content-type": plain ? "application/json" : "application/octet-stream" },
      body: plain ? JSON.stringify(body || {}) : body,
    });
    const text = await response.text();
    let answer = {};
    try { answer = JSON.parse(text); } catch { answer = { error: text.trim() }; }
    if (!response.ok) { throw new Error(answer.error || response.statusText); }
    return answer;
  }

  function make(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) { made.setAttribute(name, value); }
    made.append(...children);
    return made;
  }

  const address = document.body.dataset.follow;
  // not before all scripts of the page listen
  if (address) { document.addEventListener("DOMContentLoaded", () => follow(address)); }
  return { follow, listen, notice, confirm, send, make, show };
})();
