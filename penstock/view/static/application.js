// The page of one application: charts over time, what other sizes would bring, explanations and orders.
"use strict";
(function () {
  const { draw, localTime, escape, wrap } = penstock.charts;
  const { make } = penstock;
  const here = document.body.dataset.at;
  const narrow = () => window.matchMedia("(max-width: 720px)").matches;

  // ---- over time -------------------------------------------------------------------------------------------
  const rows = [
    { title: "rate", unit: "records/s", height: 1.2, lines: [
      ["offered", "offered_per_second", "cool", { dash: "dot" }, ",.0f"], ["read", "observed_per_second", "good", {}, ",.0f"]] },
    { title: "backlog", unit: "records", height: 0.8, lines: [["backlog", "backlog_records", "warn", {}, ",.0f", "tozeroy"]] },
    { title: "batch", unit: "seconds", height: 1, lines: [
      ["trigger", "period_seconds", "quiet", { dash: "dash", width: 1.2 }, ".1f"], ["batch", "batch_seconds", "moved", {}, ".1f"]] },
    { title: "latency", unit: "seconds", height: 0.8, lines: [["latency", "latency_seconds", "bad", {}, ".1f"]] },
    { title: "executors", unit: "", height: 1.1, lines: [
      ["held", "executors", "cool", { shape: "hv", width: 2.4 }, ",.0f"],
      ["needed", "executors_needed", "warn", { shape: "hv", dash: "dot" }, ",.1f"]] },
  ];
  const looks = {
    "scale-out": ["good", "triangle-up"], "scale-in": ["cool", "triangle-down"], "move-state": ["moved", "diamond"],
    "rejected": ["warn", "x"], "failed": ["bad", "x"], "by-hand": ["ink", "circle"],
  };

  function heldAt(series, at) {
    let held = 0;
    series.at.forEach((time, number) => { if (time <= at && series.executors[number] != null) { held = series.executors[number]; } });
    return held;
  }

  function timeline(series, colour) {
    const known = rows.filter((row) => row.lines.some((line) => series[line[1]].some((value) => value != null)));
    const at = series.at.map(localTime);
    const total = known.reduce((sum, row) => sum + row.height, 0), gap = 0.05;
    const layout = {
      height: narrow() ? 620 : 700, margin: { l: narrow() ? 46 : 62, r: 10, t: 24, b: 26 }, hovermode: "x unified", hoversubplots: "axis",
      showlegend: false, annotations: [], shapes: [], dragmode: "zoom",
      xaxis: { showgrid: false, anchor: `y${known.length}`, ticks: "outside", ticklen: 4, hoverformat: "%H:%M:%S" },
    };
    const traces = [];
    let top = 1;
    known.forEach(function (row, number) {
      const share = (row.height / total) * (1 - gap * (known.length - 1)), bottom = Math.max(0, top - share);
      const axis = number ? `y${number + 1}` : "y";
      layout[number ? `yaxis${number + 1}` : "yaxis"] = { domain: [bottom, top], rangemode: "tozero", fixedrange: true, nticks: 5, separatethousands: true };
      const named = row.lines.map((line) => `<span style="color:${colour(line[2])}">${line[0]}</span>`).join(" ");
      layout.annotations.push({ text: `<b>${row.title}</b> ${row.unit}${row.lines.length > 1 ? `   ${named}` : ""}`, x: 0, xref: "paper",
        xanchor: "left", y: top, yref: "paper", yanchor: "bottom", showarrow: false, font: { size: 12, color: colour("quiet") } });
      for (const [name, key, tone, line, format, fill] of row.lines) {
        traces.push({ type: "scatter", mode: "lines", name, x: at, y: series[key], yaxis: axis, connectgaps: key === "batch_seconds",
          line: Object.assign({ width: 1.8, color: colour(tone) }, line), fill: fill || "none", fillcolor: fill ? `${colour(tone)}22` : undefined,
          hovertemplate: `${name} %{y:${format}} ${row.unit}<extra></extra>` });
      }
      top = bottom - gap;
    });
    addMarks(series, traces, layout, known, colour);
    return { traces, layout };
  }

  function addMarks(series, traces, layout, known, colour) {
    const row = known.findIndex((one) => one.title === "executors");
    if (row < 0) { return; }
    const kinds = new Set(series.marks.map((mark) => mark.kind));
    for (const kind of kinds) {
      const marks = series.marks.filter((mark) => mark.kind === kind), [tone, symbol] = looks[kind] || ["quiet", "circle"];
      traces.push({ type: "scatter", mode: "markers", name: kind, x: marks.map((mark) => localTime(mark.at)), y: marks.map((mark) => heldAt(series, mark.at)),
        yaxis: row ? `y${row + 1}` : "y", cliponaxis: false, customdata: marks.map((mark) => mark.at),
        marker: { size: 13, symbol, color: colour(tone), line: { width: 1.5, color: colour("card") } },
        hovertext: marks.map((mark) => `<b>${escape(mark.word)} ${escape(mark.change)}</b><br>${wrap(mark.reason)}${mark.effect ? `<br>${wrap(mark.effect)}` : ""}`),
        hovertemplate: "%{hovertext}<extra></extra>" });
      if (kind !== "rejected") {
        marks.forEach((mark) => layout.shapes.push({ type: "line", x0: localTime(mark.at), x1: localTime(mark.at), y0: 0, y1: 1, yref: "paper",
          line: { color: colour(tone), width: 1, dash: "dot" }, opacity: 0.6 }));
      }
    }
  }

  const place = document.getElementById("timeline");
  let heard = false, span = null;
  penstock.listen("series", function (series) {
    span = series.at.length > 1 ? [series.at[0], series.at[series.at.length - 1]].map(localTime) : null;
    draw(place, (colour) => timeline(series, colour)).then(function () {
      place.dataset.points = series.at.length;
      if (heard) { return; }
      heard = true;
      place.on("plotly_click", function (event) {
        const mark = event.points.find((point) => point.customdata !== undefined);
        if (mark) { explain(mark.customdata); }
      });
    });
  });

  // ---- what batches wait for ---------------------------------------------------------------------------------
  penstock.listen("waits", function (queries) {
    const section = document.getElementById("waits"), charts = document.getElementById("waits-charts");
    section.hidden = !queries.length;
    while (charts.childElementCount > queries.length) { charts.lastElementChild.remove(); }
    queries.forEach(function (query, number) {
      if (!charts.children[number]) { charts.append(make("div", { class: "chart" })); }
      draw(charts.children[number], (colour) => waits(query, colour));
    });
  });

  function waits(query, colour) {
    const at = query.at.map(localTime);
    const traces = query.causes.map((cause) => ({ type: "bar", name: cause.name, x: at, y: cause.seconds, marker: { color: cause.colour },
      hovertemplate: `${escape(cause.name)} %{y:.2f} s<extra></extra>` }));
    const sums = at.map((_, number) => query.causes.reduce((sum, cause) => sum + cause.seconds[number], 0));
    traces.push({ type: "scatter", mode: "markers", x: at, y: sums, marker: { opacity: 0 }, showlegend: false,
      hovertext: query.told.map((told) => wrap(told)), hovertemplate: "%{hovertext}<extra></extra>" });
    const shapes = query.period ? [{ type: "line", x0: 0, x1: 1, xref: "paper", y0: query.period, y1: query.period,
      line: { color: colour("quiet"), width: 1.2, dash: "dash" } }] : [];
    return { traces, layout: { height: narrow() ? 330 : 260, barmode: "stack", bargap: 0.15, margin: { l: narrow() ? 46 : 62, r: 10, t: 26, b: 26 },
      shapes, hovermode: "x unified", legend: { orientation: "h", x: 0, y: narrow() ? -0.3 : 1, yanchor: narrow() ? "top" : "bottom", font: { size: 11.5 } },
      xaxis: Object.assign({ showgrid: false, hoverformat: "%H:%M:%S" }, span ? { range: span } : {}), yaxis: { title: { text: "seconds" }, fixedrange: true },
      annotations: [{ text: `<b>${escape(query.query)}</b>`, x: 1, xref: "paper", xanchor: "right", y: 1, yref: "paper", yanchor: "bottom",
        showarrow: false, font: { color: colour("quiet") } }] } };
  }

  // ---- what if -----------------------------------------------------------------------------------------------
  const slider = document.getElementById("executors");
  let foreseen = null, touched = false;

  function showSize() {
    const row = foreseen.rows[Number(slider.value) - 1];
    const put = (name, text) => { document.getElementById(`whatif-${name}`).textContent = text; };
    put("executors", `${row.executors}${row.executors === foreseen.held ? " (held)" : ""}`);
    for (const name of ["batch", "utilisation", "backlog"]) { put(name, row[name]); put(`${name}-range`, row[`${name}_range`]); }
    put("cost", row.cost);
    put("cost-range", row.cost_change);
    document.getElementById("whatif-batch").className = row.fits ? "number" : "number bad";
    draw(document.getElementById("whatif-chart"), curve);
  }

  function curve(colour) {
    const x = foreseen.rows.map((row) => row.executors), edge = (number) => foreseen.rows.map((row) => row.batch_seconds[number]);
    const line = (y, more) => Object.assign({ type: "scatter", mode: "lines", x, y, hoverinfo: "skip" }, more);
    const chosen = Number(slider.value);
    const highest = Math.max(foreseen.period * 1.5, foreseen.rows[foreseen.held - 1].batch_seconds[2] * 1.2);
    return { traces: [
      line(edge(0), { line: { width: 0 } }),
      line(edge(2), { line: { width: 0 }, fill: "tonexty", fillcolor: `${colour("moved")}2e` }),
      line(edge(1), { line: { width: 2, color: colour("moved") }, hoverinfo: "x+y", hovertemplate: "%{x} executors: %{y:.1f} s<extra></extra>" }),
      { type: "scatter", mode: "markers", x: [chosen], y: [edge(1)[chosen - 1]], marker: { size: 10, color: colour("link") }, hoverinfo: "skip" },
    ], layout: { height: 240, showlegend: false, margin: { l: 46, r: 10, t: 10, b: 36 },
      xaxis: { title: { text: "executors" }, fixedrange: true, showgrid: false },
      yaxis: { title: { text: "batch, seconds" }, range: [0, highest], fixedrange: true },
      shapes: [
        { type: "line", x0: 0, x1: 1, xref: "paper", y0: foreseen.period, y1: foreseen.period, line: { color: colour("quiet"), width: 1.2, dash: "dash" } },
        { type: "line", x0: foreseen.held, x1: foreseen.held, y0: 0, y1: 1, yref: "paper", line: { color: colour("cool"), width: 1, dash: "dot" } }],
    } };
  }

  penstock.listen("whatif", function (data) {
    document.getElementById("whatif").hidden = !data.rows;
    if (!data.rows) { return; }
    foreseen = data;
    slider.max = data.rows.length;
    if (!touched) { slider.value = data.held; }
    showSize();
  });
  slider.addEventListener("input", () => { touched = true; showSize(); });

  // ---- explanations and orders -------------------------------------------------------------------------------
  async function explain(at) {
    const response = await fetch(`${here}/explanations/${at}`);
    if (!response.ok) { penstock.notice(await response.text(), true); return; }
    const told = await response.json();
    await penstock.confirm(told.title, make("pre", {}, told.text), null);
  }

  async function give(order, body, done) {
    try {
      await penstock.send(`${here}/orders/${order}`, body);
      penstock.notice(done, false);
    } catch (error) {
      penstock.notice(error.message, true);
    }
  }

  const orders = {
    async pause() {
      const text = make("p", {}, "It goes on watching and changes nothing until it is resumed.");
      if (await penstock.confirm("Pause the autopilot?", text, "Pause")) { await give("pause", {}, "paused"); }
    },
    async resume() {
      if (await penstock.confirm("Let the autopilot act again?", null, "Resume")) { await give("resume", {}, "resumed"); }
    },
    async scale(button) {
      const size = make("input", { type: "number", min: button.dataset.least, max: button.dataset.most, value: button.dataset.executors, id: "size", required: "" });
      const hold = make("input", { type: "checkbox", id: "size-pause", checked: "" });
      const body = make("div", {}, make("label", {}, "executors ", size), make("label", {}, hold, " pause the autopilot, so that the size stays"));
      if (await penstock.confirm("Set the number of executors", body, "Set")) {
        await give("scale", { executors: size.valueAsNumber, pause: hold.checked }, `on the way to ${size.value} executors`);
      }
    },
    async override() {
      const said = await (await fetch(`${here}/overrides`)).json();
      const holds = [...said.pin.map((one) => `pinned ${one}`), ...said.veto.map((one) => `vetoed ${one}`)].join(", ");
      const pin = make("input", { id: "pin", placeholder: "heap=2g" }), veto = make("input", { id: "veto", placeholder: "P3" });
      const clear = make("input", { type: "checkbox", id: "clear" });
      const body = make("div", {}, make("p", {}, holds ? `In force: ${holds} (by ${said.by}).` : "Nothing is pinned or vetoed."),
        make("label", {}, "pin a parameter of memory or cores ", pin), make("label", {}, "veto a rule ", veto),
        make("label", {}, clear, " forget what was said before"));
      if (await penstock.confirm("Pins and vetoes", body, "Say so")) {
        await give("override", { pin: pin.value, veto: veto.value, clear: clear.checked }, "written to the journal");
      }
    },
  };

  document.addEventListener("click", function (event) {
    const button = event.target.closest("button[data-order], button[data-explain]");
    if (!button) { return; }
    if (button.dataset.explain) { explain(button.dataset.explain); } else { orders[button.dataset.order](button); }
  });

  // an application of the past sends no events: its data is asked for once
  if (!document.body.dataset.follow) {
    fetch(`${here}/data`).then((response) => response.json()).then(penstock.show);
  }
})();
