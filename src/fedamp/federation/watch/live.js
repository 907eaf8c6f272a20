"use strict";
(() => {
  const EVERY = 2000;
  const PATIENCE = 10000;
  const $ = (id) => document.getElementById(id);
  const { dark, plain, colour, dash, layout, config } = Charts;
  const hidden = new Set();
  const parts = {};
  let plots = {};
  let drawn = {};
  let last = "";
  let legend = "";
  let lost = null; // since when nothing can be reached
  let ahead = 0; // milliseconds by which the other clock is ahead of the browser's

  function ago(moment) {
    const seconds = Math.max(0, Math.round((Date.now() + ahead - Date.parse(moment)) / 1000));
    if (seconds < 90) return `${seconds} s ago`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
    if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
    return new Date(moment).toLocaleString();
  }

  function tick() {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const text = ago(time.dateTime);
      if (time.textContent !== text) time.textContent = text;
      time.title ||= new Date(time.dateTime).toLocaleString();
    }
  }

  function banner(text) {
    if ($("banner").textContent !== text) $("banner").textContent = text;
    $("banner").hidden = !text;
  }

  // The parts are HTML whose values were escaped where it was made; one that has not changed stays, focus and all.
  function showParts(found) {
    for (const place of document.querySelectorAll("[data-part]")) {
      const html = found[place.dataset.part] ?? "";
      if (parts[place.dataset.part] === html) continue;
      parts[place.dataset.part] = html;
      const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
      place.innerHTML = html;
      if (atEnd) place.scrollTop = place.scrollHeight;
    }
  }

  function drawCurves() {
    const { metric, lines } = plots.curves;
    const shown = lines.map((line, i) => ({ line, i })).filter(({ line }) => !hidden.has(line.name));
    // What lies below is wider, so that curves that coincide are both seen.
    const width = (place) => 2 + (3 * (shown.length - 1 - place)) / shown.length;
    const traces = shown.map(({ line, i }, place) => ({
      x: line.x, y: line.y, name: plain(line.name), mode: line.x.length > 1 ? "lines" : "markers", connectgaps: false,
      line: { color: colour(i), width: width(place), dash: dash(i) },
      marker: { color: colour(i), size: 8 },
      hovertemplate: `${plain(line.name)}<br>round %{x}: %{y:.4g}<extra></extra>`,
    }));
    const most = Math.max(...lines.map((line) => line.x.at(-1) ?? 0));
    Plotly.react("curves", traces, layout({
      xaxis: { title: { text: "round" }, ...(most < 8 ? { dtick: 1 } : {}) }, yaxis: { title: { text: metric } },
    }), config);
  }

  function drawXi() {
    const { xi } = plots;
    const slider = $("xi-round");
    const place = Math.min(Number(slider.value), xi.rounds.length - 1);
    $("xi-shown").textContent = xi.rounds[place];
    slider.setAttribute("aria-valuetext", `round ${xi.rounds[place]}`);
    $("xi-note").textContent = `Collaboration weights; ${Charts.heatMap($("xi"), xi, place, "Silos")}`;
  }

  // The slider follows the newest round, unless it was moved away from it.
  function moveSlider() {
    const slider = $("xi-round");
    const end = plots.xi.rounds.length - 1;
    const follows = slider.value === slider.max;
    slider.max = end;
    if (follows) slider.value = end;
  }

  const draw = {
    curves() {
      const names = plots.curves.lines.map((line) => line.name);
      if (legend !== names.join()) Charts.fillLegend($("legend"), names, hidden, drawCurves);
      legend = names.join();
      drawCurves();
    },
    xi() {
      moveSlider();
      drawXi();
    },
    spectrum: () => Charts.spectrum($("spectrum"), plots.spectrum),
    gains: () => Charts.gains($("gains"), plots.gains),
  };

  function showPlots(found) {
    plots = found;
    for (const place of document.querySelectorAll("[data-shown]")) place.hidden = !plots[place.dataset.shown];
    for (const place of document.querySelectorAll("[data-empty]")) place.hidden = Boolean(plots[place.dataset.empty]);
    for (const [name, one] of Object.entries(draw)) {
      const text = JSON.stringify(plots[name] ?? null);
      if (plots[name] && drawn[name] !== text) one();
      drawn[name] = text;
    }
  }

  function show(text) {
    const found = JSON.parse(text);
    if (found.fault) return banner(found.fault);
    $("main").hidden = false;
    showParts(found.parts);
    showPlots(found.plots);
  }

  // What there is to see now, as text; null if nobody answers.
  async function asked() {
    try {
      const answer = await fetch("data.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) return null;
      ahead = Date.parse(answer.headers.get("Date")) - Date.now() || 0;
      return await answer.text();
    } catch {
      return null;
    }
  }

  async function look() {
    const text = await asked();
    if (text === null) {
      lost ??= new Date();
      banner(`Not reachable since ${lost.toLocaleTimeString()}: is the watch command still running? Below is how it was then.`);
    } else if (text !== last || lost) {
      lost = null;
      last = text;
      banner("");
      show(text);
    }
    tick();
  }

  async function follow() {
    for (;;) {
      if (document.visibilityState === "visible") await look();
      await new Promise((resolve) => setTimeout(resolve, EVERY));
    }
  }

  $("xi-round")?.addEventListener("input", drawXi);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && look());
  dark.addEventListener("change", () => { drawn = {}; legend = ""; showPlots(plots); });
  setInterval(tick, 1000);
  follow();
})();
