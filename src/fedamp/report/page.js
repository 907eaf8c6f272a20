"use strict";
(() => {
  const blocks = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const { dark, plain, colour, faint, DASHES, layout, config } = Charts;
  const hidden = new Set();
  let block = blocks[0];

  const shown = () => block.methods.map((method, i) => ({ method, i })).filter(({ method }) => !hidden.has(method.name));

  function bands(key) {
    const traces = [];
    const methods = shown();
    for (const [place, { method, i }] of methods.entries()) {
      const band = method[key];
      if (!band) continue;
      const x = band.mean.map((_, k) => k + 1);
      if (method.seeds.length > 1) {
        const line = { width: 0, color: colour(i) };
        traces.push({ x, y: band.low, mode: "lines", line, hoverinfo: "skip" });
        traces.push({ x, y: band.high, mode: "lines", line, fill: "tonexty", fillcolor: faint(colour(i)), hoverinfo: "skip" });
      }
      traces.push({
        x, y: band.mean, name: plain(method.name), mode: x.length > 1 ? "lines" : "markers",
        // What lies below is wider, so that curves that coincide are both seen.
        line: { color: colour(i), width: 2 + (3 * (methods.length - 1 - place)) / methods.length, dash: DASHES[i % DASHES.length] }, marker: { color: colour(i), size: 8 },
        hovertemplate: `${plain(method.name)}<br>round %{x}: %{y:.4g}<extra></extra>`,
      });
    }
    return traces;
  }

  function rounds(key) {
    const most = Math.max(...block.methods.map((method) => method[key]?.mean.length ?? 0));
    return { title: { text: "round" }, ...(most < 8 ? { dtick: 1 } : {}) };
  }

  function drawCurves() {
    Plotly.react("curves", bands("curve"), layout({ xaxis: rounds("curve"), yaxis: { title: { text: block.metric } } }), config);
  }

  function drawBoxes() {
    const traces = shown().map(({ method, i }) => ({
      type: "box", name: plain(method.name), x: method.clients.map((client) => client.score),
      text: method.clients.map((client) => plain(client.name)), orientation: "h",
      boxpoints: "all", jitter: 0.6, pointpos: 0, marker: { color: colour(i), size: 4, opacity: 0.65 },
      line: { color: colour(i), width: 1.5 }, fillcolor: faint(colour(i)),
      hovertemplate: "%{text}: %{x:.4g}<extra>" + plain(method.name) + "</extra>",
    }));
    // A long name must not push the boxes off a phone.
    const most = $("boxes").clientWidth < 420 ? 16 : 30;
    const names = shown().map(({ method }) => plain(method.name.length > most ? method.name.slice(0, most - 1) + "…" : method.name));
    const height = Math.max(340, 60 + 38 * traces.length);
    $("boxes").style.height = height + "px";
    Plotly.react("boxes", traces, layout({ height, xaxis: { title: { text: block.metric } }, yaxis: { autorange: "reversed", tickvals: traces.map((trace) => trace.name), ticktext: names } }), config);
  }

  function drawRecovery() {
    const any = block.methods.some((method) => method.recovery);
    $("recovery-figure").hidden = !any;
    if (any) {
      Plotly.react("recovery", bands("recovery"), layout({
        xaxis: rounds("recovery"), yaxis: { title: { text: "adjusted Rand index" }, range: [-0.15, 1.05] },
      }), config);
    }
  }

  function drawXi() {
    const withXi = block.methods.filter((method) => method.xi);
    $("xi-figure").hidden = !withXi.length;
    if (!withXi.length) return;
    const method = withXi.find((each) => each.name === $("xi-method").value) ?? withXi[0];
    const xi = method.xi;
    const slider = $("xi-round");
    const place = Math.min(Number(slider.value), xi.rounds.length - 1);
    $("xi-shown").textContent = xi.rounds[place];
    slider.setAttribute("aria-valuetext", `round ${xi.rounds[place]}`);
    const note = Charts.heatMap($("xi"), xi, place);
    $("xi-note").textContent = `Collaboration weights of seed ${xi.seed}; ${note}`;
  }

  function choose(select, names) {
    select.replaceChildren(...names.map((name, i) => new Option(name, name, false, i === names.length - 1)));
  }

  function setSlider() {
    const withXi = block.methods.filter((method) => method.xi);
    const method = withXi.find((each) => each.name === $("xi-method").value);
    if (!method) return;
    $("xi-round").max = method.xi.rounds.length - 1;
    $("xi-round").value = method.xi.rounds.length - 1;
  }

  function drawAll() {
    Charts.fillLegend($("legend"), block.methods.map((method) => method.name), hidden, () => {
      drawCurves();
      drawBoxes();
      drawRecovery();
    });
    drawCurves();
    drawBoxes();
    drawXi();
    drawRecovery();
    document.querySelectorAll("[data-spectrum]").forEach((plot) => Charts.spectrum(plot, JSON.parse(plot.dataset.spectrum)));
    document.querySelectorAll("[data-clients]").forEach((plot) => Charts.gains(plot, JSON.parse(plot.dataset.clients)));
  }

  function show(number) {
    block = blocks[number];
    hidden.clear();
    choose($("xi-method"), block.methods.filter((method) => method.xi).map((method) => method.name));
    setSlider();
    drawAll();
  }

  $("xi-round").addEventListener("input", drawXi);
  $("xi-method").addEventListener("change", () => { setSlider(); drawXi(); });
  $("block").replaceChildren(...blocks.map((each, i) => new Option(each.label || "all runs", i)));
  $("block").addEventListener("change", (event) => show(Number(event.target.value)));
  $("block-choice").hidden = blocks.length < 2;
  dark.addEventListener("change", drawAll);
  show(0);
})();
