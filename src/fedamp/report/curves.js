"use strict";
// Curves by round: an axis on which it is seen where methods end, and each one's name at the end of its line.
const Curves = (() => {
  const { plain, css, colour, faint, layout, config } = Charts;
  const FAR = 8; // a method that ends so many times farther from the best than the middle one does is left outside
  const SHARE = 0.1; // but not one that ends within this share of the best
  const NARROW = 420; // pixels below which there is no room for names at the ends of lines
  const LINE = 15; // pixels between two names
  const WIDE = 6; // pixels of AutoAMP's line, which lies below all others and is seen beside them
  const MARGIN = { l: 52, r: 12, t: 12, b: 44 };

  const finite = (values) => (values ?? []).filter((value) => Number.isFinite(value));
  const middle = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const cut = (name, most) => (name.length > most ? name.slice(0, most - 1) + "…" : name);

  // The y axis: all of each method's last quarter of rounds, without methods that end far from all others; or all there is.
  function view(lines, higher, whole) {
    const sign = higher ? 1 : -1;
    const ends = lines.map((line) => finite(line.mean).at(-1));
    const known = ends.filter((end) => end !== undefined);
    if (!known.length) return { range: [0, 1], outside: [] };
    const best = sign * Math.max(...known.map((end) => sign * end));
    const limit = Math.max(FAR * middle(known.map((end) => Math.abs(best - end))), SHARE * Math.abs(best));
    const away = ends.map((end) => !whole && Math.abs(best - end) > limit);
    const few = away.filter(Boolean).length <= Math.round(known.length / 4); // what many do is no exception
    const far = (i) => few && away[i];
    const near = lines.filter((_, i) => ends[i] !== undefined && !far(i));
    const values = near.flatMap(({ mean, low, high }) => {
      const end = finite(mean).slice(-Math.ceil(mean.length / 4));
      const peak = sign * Math.max(...finite(mean).map((value) => sign * value));
      const spread = [low, high].flatMap((edge) => (whole ? finite(edge) : finite(edge).slice(-1)));
      return whole ? [...finite(mean), ...spread] : [...end, peak, ...spread];
    });
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const room = 0.07 * (most - least) || 0.02 * Math.abs(most) || 1;
    const outside = lines.map((line, i) => ({ name: line.name, end: ends[i], i })).filter(({ i }) => ends[i] !== undefined && far(i));
    return { range: [least - room, most + room], outside };
  }

  function traces(lines) {
    const bands = lines.filter(({ low }) => low).length;
    const upwards = [...lines].sort((a, b) => (b.i < 0) - (a.i < 0));
    return upwards.flatMap(({ name, i, x, mean, low, high, dash, width }, place) => {
      const edge = { x, mode: "lines", line: { width: 0, color: colour(i) }, hoverinfo: "skip" };
      const band = low ? [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: faint(colour(i), bands) }] : [];
      const end = mean.findLastIndex((value) => Number.isFinite(value));
      // What lies below is wider, so that curves that coincide are both seen.
      const usual = i < 0 ? WIDE : 2 + (3 * (lines.length - 1 - place)) / lines.length;
      return [...band, {
        x, y: mean, name: plain(name), mode: "lines+markers",
        line: { color: colour(i), width: width ?? usual, dash: dash ?? Charts.dash(i) },
        marker: { color: colour(i), size: mean.map((_, k) => (k === end ? (i < 0 ? 10 : 7) : 0)), opacity: 1, line: { width: 0 } },
        hovertemplate: `${plain(name)}<br>round %{x}: %{y:.4g}<extra></extra>`,
      }];
    });
  }

  // Names beside the ends of lines, moved apart so that each can be read.
  function names(lines, range, outside, height) {
    const pixels = height / (range[1] - range[0]);
    const labels = lines.map((line) => ({ line, end: finite(line.mean).at(-1) })).filter(({ end }) => end !== undefined)
      .map(({ line, end }) => ({ line, y: Math.min(range[1], Math.max(range[0], end)), below: outside.has(line.name) && (end < range[0] ? "↓ " : "↑ ") }))
      .sort((a, b) => a.y - b.y);
    labels.forEach((label) => { label.at = (label.y - range[0]) * pixels; });
    labels.forEach((label, k) => { if (k) label.at = Math.max(label.at, labels[k - 1].at + LINE); });
    const over = labels.length ? Math.max(0, labels.at(-1).at - height) : 0;
    [...labels].reverse().forEach((label, k, all) => { label.at = k ? Math.min(label.at, all[k - 1].at - LINE) : label.at - over; });
    return labels.map(({ line, y, at, below }) => ({
      xref: "paper", x: 1, xanchor: "left", xshift: 6, y, yshift: at - (y - range[0]) * pixels, showarrow: false,
      text: (below || "") + plain(cut(line.label ?? line.name, 18)), font: { color: colour(line.i), size: 12 },
    }));
  }

  // Draw lines {name, i, x, mean, low, high}, on a `fixed` axis if there is one; return in words what lies outside it.
  function draw(plot, lines, { label, higher, whole = false, most, fixed = null }) {
    const { range, outside } = fixed ? { range: fixed, outside: [] } : view(lines, higher, whole);
    const wide = plot.clientWidth >= NARROW;
    const longest = Math.max(0, ...lines.map((line) => Math.min(18, (line.label ?? line.name).length)));
    const height = plot.clientHeight - MARGIN.t - MARGIN.b;
    const away = new Set(outside.map(({ name }) => name));
    const annotations = wide ? names(lines, range, away, height) : [];
    // A method with fewer rounds ends earlier: a thin line leads from its end to its name.
    const leads = lines.map((line) => ({ line, k: line.mean.findLastIndex((value) => Number.isFinite(value)) }))
      .filter(({ line, k }) => wide && k >= 0 && line.x[k] < most && !away.has(line.name))
      .map(({ line, k }) => ({ type: "line", x0: line.x[k], x1: most, y0: line.mean[k], y1: line.mean[k], line: { color: colour(line.i), width: 1, dash: "dot" }, opacity: 0.5 }));
    Plotly.react(plot, traces(lines), layout({
      annotations, shapes: leads, margin: { ...MARGIN, r: wide ? 14 + 7.2 * longest : MARGIN.r },
      xaxis: { title: { text: "round" }, range: most > 1 ? [1 - 0.01 * most, most + 0.02 * most] : [0.5, 1.5], ...(most < 8 ? { dtick: 1 } : {}) },
      yaxis: { title: { text: label }, range },
    }), config);
    if (!outside.length) return "";
    return ` Outside the axis: ${outside.map(({ name, end }) => `${name} (ends at ${Number(end.toPrecision(4))})`).join(", ")}.`;
  }

  return { view, draw, finite };
})();
