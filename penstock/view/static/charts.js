// Charts by plotly.js in the colours of the page, drawn anew when these change.
"use strict";
penstock.charts = (function () {
  const drawn = new Map();
  const config = { displayModeBar: false, responsive: true };

  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }

  // Plotly takes a time without a zone as it stands: so it is written in the zone of who looks.
  function localTime(seconds) {
    const moment = new Date(seconds * 1000);
    return new Date(moment.getTime() - moment.getTimezoneOffset() * 60000).toISOString().slice(0, -1);
  }

  // Plotly reads a few tags in texts: what others named must not become one.
  function escape(text) { return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); }

  function wrap(text, width) {
    const lines = [""];
    for (const word of String(text).split(/\s+/)) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length > (width || 64)) { lines.push(word); } else { lines[lines.length - 1] = last ? `${last} ${word}` : word; }
    }
    return lines.map(escape).join("<br>");
  }

  function dress(layout) {
    const axis = { gridcolor: colour("rule"), linecolor: colour("rule"), tickcolor: colour("rule"), zeroline: false };
    const look = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", uirevision: "kept",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("ink") },
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("rule"), align: "left", font: { color: colour("ink"), size: 12 } },
    };
    const made = Object.assign({}, look, layout);
    for (const name of Object.keys(made)) {
      if (/^[xy]axis\d*$/.test(name)) { made[name] = Object.assign({}, axis, made[name]); }
    }
    return made;
  }

  // `make` returns {traces, layout}; it is called again when the colours change.
  function draw(place, make) {
    drawn.set(place, make);
    const made = make(colour);
    return Plotly.react(place, made.traces, dress(made.layout), config);
  }

  document.addEventListener("penstock:theme", function () {
    drawn.forEach((make, place) => { if (place.isConnected) { draw(place, make); } else { drawn.delete(place); } });
  });
  return { draw, localTime, escape, wrap };
})();
