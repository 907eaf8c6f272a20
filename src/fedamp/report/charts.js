"use strict";
// The charts that the report and the live pages have in common: one look, whoever draws.
const Charts = (() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const fine = matchMedia("(pointer: fine)");
  // Okabe and Ito's colours, which the colour-blind can distinguish, and four more; a lighter set on dark paper. The first,
  // grey, is Separate's alone. Twelve colours and five dashes: 60 methods look different.
  const COLOURS = {
    light: ["#5b6472", "#0072b2", "#b35900", "#007a5a", "#a8457f", "#2a8fc7", "#7a6a00", "#c0392b", "#5e3c99", "#6d4c41", "#4c8c00", "#008f96", "#8e24aa"],
    dark: ["#b4bdca", "#5db4f0", "#f0a048", "#3fd0a4", "#e690c2", "#9bd5f7", "#e6d84a", "#ff8a7a", "#b9a0f0", "#c9a394", "#a5d65a", "#4fd6d6", "#dd8df0"],
  };
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
  const OURS = { light: "#e6006f", dark: "#ff4fa3" }; // AutoAMP's alone

  // A number for each method's look: below 0 AutoAMP, 0 Separate.
  function looks(names) {
    const is = (name, method) => name === method || name.startsWith(method + " ");
    let [ours, others, alone] = [0, 0, false];
    return names.map((name) => {
      if (is(name, "autoamp")) return --ours;
      if (alone || !is(name, "separate")) return ++others;
      alone = true;
      return 0;
    });
  }

  // Plotly reads a little HTML in its texts: give it none.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (i) => {
    const paper = dark.matches ? "dark" : "light";
    return i < 0 ? OURS[paper] : COLOURS[paper][i && 1 + ((i - 1) % (COLOURS.light.length - 1))];
  };
  const dash = (i) => DASHES[(i < 0 ? -1 - i : i) % DASHES.length];
  const faint = (hex, over = 1) => hex + (over > 3 ? "12" : "2e"); // where many lie over one another, each is fainter

  function layout(more) {
    const axis = { gridcolor: css("--line"), zeroline: false, automargin: true, linecolor: css("--line") };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: css("--ink"), family: "system-ui, sans-serif", size: 13 },
      margin: { l: 52, r: 12, t: 8, b: 44 }, showlegend: false, hovermode: "closest",
      // On a touch screen a drag over a plot scrolls the page.
      dragmode: fine.matches ? "zoom" : false,
      ...more, xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
    };
  }

  const config = {
    responsive: true, displaylogo: false,
    displayModeBar: false, // it would lie over the data; a double click undoes a zoom
  };

  function weights(xi, place) {
    xi.raw ??= Uint8Array.from(atob(xi.bytes), (sign) => sign.charCodeAt(0));
    const rows = [];
    for (let i = 0; i < xi.size; i++) {
      const start = (place * xi.size + i) * xi.size;
      rows.push(Array.from(xi.raw.subarray(start, start + xi.size), (step) => xi.top * (step / 255) ** 2));
    }
    return rows;
  }

  // By the root of the weight, so that small weights can be distinguished too.
  function scale() {
    const stops = dark.matches
      ? ["#12161d", "#1d3557", "#2a6f97", "#52b69a", "#b5e48c", "#fdffb6"]
      : ["#ffffff", "#d6e6f4", "#9ac8e0", "#4896c8", "#1764ab", "#08306b"];
    return stops.map((stop, i) => [(i / (stops.length - 1)) ** 2, stop]);
  }

  // Who listens to whom in the round at this place; returns what there is to know about the picture.
  function heatMap(plot, xi, place, who = "Clients") {
    const places = xi.clients.map((_, i) => i);
    const names = xi.clients.map(plain);
    const edges = places.filter((i) => i && xi.found[i] !== xi.found[i - 1]).map((i) => i - 0.5);
    const rule = { color: css("--warn"), width: 1, dash: "dot" };
    const end = xi.size - 0.5;
    const shapes = edges.flatMap((at) => [
      { type: "line", x0: at, x1: at, y0: -0.5, y1: end, line: rule },
      { type: "line", x0: -0.5, x1: end, y0: at, y1: at, line: rule },
    ]);
    const small = plot.clientWidth < 420;
    const few = xi.size <= (small ? 12 : 30);
    const short = xi.clients.map((name) => plain(name.replace(/^client (?=\d+$)/, "").slice(0, 14)));
    const ticks = few ? { tickvals: places, ticktext: short, tickfont: { size: 10 } } : { showticklabels: false, ticks: "" };
    const trace = {
      type: "heatmap", x: places, y: places, z: weights(xi, place), zmin: 0, zmax: xi.top, colorscale: scale(),
      colorbar: small
        ? { thickness: 10, outlinewidth: 0, orientation: "h", y: 1.02, yanchor: "bottom", nticks: 5 }
        : { thickness: 12, outlinewidth: 0, title: { text: "weight", side: "right" } },
      text: names.map((row) => names.map((column) => `${row} listens to ${column}`)),
      hovertemplate: "%{text}: %{z:.4f}<extra></extra>",
    };
    Plotly.react(plot, [trace], layout({
      shapes, margin: { l: 44, r: 8, t: 8, b: 44 },
      xaxis: { title: { text: "gives" }, showgrid: false, constrain: "domain", tickangle: -90, ...ticks },
      yaxis: { title: { text: "listens" }, showgrid: false, autorange: "reversed", scaleanchor: "x", constrain: "domain", ...ticks },
    }), config);
    const number = new Set(xi.found).size;
    const groups = number === 1 ? "1 group" : `${number} groups`;
    const left = xi.rounds.at(-1) > xi.rounds.length ? " Some rounds are left out to keep the page small." : "";
    return `${dark.matches ? "brighter" : "darker"} is more. ${who} are in the order of ` +
      `the ${groups} found in the last round's weights, with dotted lines in between.${left}`;
  }

  function spectrum(plot, { values, rank }) {
    const x = values.map((_, i) => i + 1);
    const kept = { color: css("--warn"), width: 2, dash: "dot" };
    const few = values.length < 12 ? { dtick: 1 } : {};
    // A bar may be too low to be seen and count: of few clients, each has its number.
    const text = values.map((value) => (Math.abs(value) < 0.005 ? "0" : String(Number(value.toPrecision(2)))).replace("-", "−"));
    const numbers = values.length < 12 ? { text, textposition: "outside", cliponaxis: false } : {};
    Plotly.react(plot, [{
      type: "bar", x, y: values, marker: { color: x.map((i) => (i <= rank ? colour(1) : colour(0))) },
      ...numbers, hovertemplate: "direction %{x}: %{y:.3g} times the noise<extra></extra>",
    }], layout({
      shapes: [{ type: "line", x0: rank + 0.5, x1: rank + 0.5, yref: "paper", y0: 0, y1: 1, line: kept }],
      annotations: [{ x: rank + 0.5, y: 1, yref: "paper", yanchor: "bottom", showarrow: false, text: `rank ${rank}`, font: { color: css("--warn") } }],
      margin: { l: 52, r: 24, t: 26, b: 44 }, bargap: values.length < 6 ? 0.6 : 0.2,
      xaxis: { title: { text: "direction" }, showgrid: false, range: [0.4, values.length + 0.6], ...few },
      yaxis: { title: { text: "times the mean noise" }, zeroline: true, zerolinecolor: css("--soft") },
    }), config);
  }

  function epsilon(plot, { curves, asked }) {
    const last = Math.max(...curves.flatMap(({ x }) => x));
    const rule = { color: css("--warn"), width: 2, dash: "dot" };
    Plotly.react(plot, curves.map(({ name, x, y }, i) => ({
      type: "scatter", mode: last < 30 ? "lines+markers" : "lines", x: [0, ...x], y: [0, ...y], line: { color: colour(i + 1), dash: dash(i) },
      text: Array(x.length + 1).fill(plain(name)), hovertemplate: "%{text}, round %{x}: epsilon %{y:.3g}<extra></extra>",
    })), layout({
      shapes: asked.map((y) => ({ type: "line", x0: 0, x1: 1, xref: "paper", y0: y, y1: y, line: rule })),
      xaxis: { title: { text: "round" }, ...(last < 12 ? { dtick: 1 } : {}) },
      yaxis: { title: { text: "epsilon" }, rangemode: "tozero" },
    }), config);
  }

  function gains(plot, { names, others, gain }) {
    const places = names.map((_, i) => i);
    const text = names.map(plain);
    const few = names.length <= (plot.clientWidth < 420 ? 12 : 30);
    const short = names.map((name) => plain(name.replace(/^client (?=\d+$)/, "").slice(0, 14)));
    const bar = (y, i, yaxis, says) => ({
      type: "bar", x: places, y, yaxis, text, textposition: "none", marker: { color: colour(i) }, hovertemplate: `%{text}: ${says}<extra></extra>`,
    });
    const axis = { gridcolor: css("--line"), linecolor: css("--line"), zeroline: false, automargin: true };
    Plotly.react(plot, [bar(others, 1, "y", "listens to %{y:.1f} others"), bar(gain, 3, "y2", "expects %{y:.0f} % less error")], layout({
      xaxis: { title: { text: "client" }, anchor: "y2", showgrid: false, ...(few ? { tickvals: places, ticktext: short } : { showticklabels: false }) },
      yaxis: { title: { text: "others" }, domain: [0.56, 1], range: [0, 1.05 * Math.max(1, ...others)] },
      yaxis2: { ...axis, title: { text: "gain, %" }, domain: [0, 0.44], range: [0, 105] },
      bargap: names.length < 6 ? 0.6 : 0.2,
    }), config);
  }

  function swatch(i) {
    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const dashes = { solid: "none", dash: "8 5", dot: "3 3", dashdot: "9 3 3 3", longdash: "13 6" }[dash(i)];
    const numbers = { x1: 0, x2: 34, y1: 5, y2: 5, stroke: colour(i), "stroke-width": i < 0 ? 6 : 3, "stroke-dasharray": dashes };
    for (const [name, value] of Object.entries(numbers)) line.setAttribute(name, value);
    for (const [name, value] of Object.entries({ width: 34, height: 10, "aria-hidden": "true" })) drawing.setAttribute(name, value);
    drawing.append(line);
    return drawing;
  }

  // Boxes that hide and show curves by name, each with its look; `draw` is called after a change.
  function fillLegend(fieldset, names, hidden, draw, look = names.map((_, i) => i)) {
    const labels = names.map((name, i) => {
      const label = document.createElement("label");
      const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !hidden.has(name) });
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(name);
        else hidden.add(name);
        draw();
      });
      label.append(box, swatch(look[i]), name);
      return label;
    });
    fieldset.replaceChildren(fieldset.firstElementChild, ...labels);
  }

  return { dark, plain, css, colour, faint, dash, looks, layout, config, heatMap, spectrum, epsilon, gains, swatch, fillLegend };
})();
