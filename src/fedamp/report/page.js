"use strict";
// The page as a whole: which setting, methods, seed and client are shown, and what must be drawn for them.
(() => {
  const blocks = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const { dark, plain, colour, faint, layout, config } = Charts;
  const hidden = new Set();
  let block = blocks[0];
  let stale = true; // whether the overview must be drawn before it is shown
  let opened = null; // the name of the client whose view is shown

  const looks = () => Charts.looks(block.methods.map((method) => method.name));
  const shown = () => looks().map((i, place) => ({ method: block.methods[place], i })).filter(({ method }) => !hidden.has(method.name));
  const chosen = () => block.methods.find((method) => method.name === $("client-method").value) ?? block.methods[0];
  const seed = () => Number($("client-seed").value);
  const whole = () => $("whole-axis").checked;

  function drawBands(plot, key, label, higher, fixed) {
    const lines = shown().filter(({ method }) => method[key]).map(({ method, i }) => {
      const { mean, low, high } = method[key];
      const band = method.seeds.length > 1 ? { low, high } : {};
      return { name: method.name, i, x: mean.map((_, k) => k + 1), mean, ...band };
    });
    const most = Math.max(1, ...block.methods.map((method) => method[key]?.mean.length ?? 0));
    return Curves.draw(plot, lines, { label, higher, whole: whole(), most, fixed });
  }

  const SPREAD = "Line: mean over seeds; band: from the lowest to the highest seed.";
  const AXIS = " The axis is made for the last quarter of the rounds; tick “whole axis” for the first ones.";

  function drawCurves() {
    const outside = drawBands($("curves"), "curve", block.metric, block.higher);
    $("curves-note").textContent = `Mean over clients after each round. ${SPREAD}${outside}${whole() ? "" : AXIS}`;
    if ($("loss-figure").hidden) return;
    const left = drawBands($("loss"), "loss", "test loss (lower is better)", false);
    $("loss-note").textContent = `Mean loss on the clients' test samples, of the same models. ${SPREAD}${left}`;
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
    if (!$("recovery-figure").hidden) drawBands($("recovery"), "recovery", "adjusted Rand index", true, [-0.15, 1.05]);
  }

  function drawXi() {
    const withXi = block.methods.filter((method) => method.xi);
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

  function drawClients() {
    const method = chosen();
    if (!$("gain-figure").hidden) Clients.drawGains($("gain"), $("gain-note"), block, method, seed(), (name) => { location.hash = "client=" + encodeURIComponent(name); });
    Clients.fillTable(block, method, seed());
  }

  // Before anything is drawn: a plot is as wide as its place is then, and without a neighbour that is the whole line.
  function choosePlaces() {
    const any = (known) => block.methods.some(known);
    $("loss-figure").hidden = !any((method) => method.loss);
    $("recovery-figure").hidden = !any((method) => method.recovery);
    $("xi-figure").hidden = !any((method) => method.xi);
    $("gain-figure").hidden = !any((method) => method.runs.some((run) => run.gain));
  }

  function drawMethods() {
    drawCurves();
    drawBoxes();
    drawRecovery();
  }

  function drawOverview() {
    stale = false;
    choosePlaces();
    Charts.fillLegend($("legend"), block.methods.map((method) => method.name), hidden, drawMethods, looks());
    drawMethods();
    drawXi();
    drawClients();
    document.querySelectorAll("[data-spectrum]").forEach((plot) => Charts.spectrum(plot, JSON.parse(plot.dataset.spectrum)));
    document.querySelectorAll("[data-epsilon]").forEach((plot) => Charts.epsilon(plot, JSON.parse(plot.dataset.epsilon)));
    document.querySelectorAll("[data-clients]").forEach((plot) => Charts.gains(plot, JSON.parse(plot.dataset.clients)));
    document.querySelectorAll(".wide").forEach((table) => watch.observe(table));
  }

  // A table that is wider than its place says so.
  const watch = new ResizeObserver((changes) => changes.forEach(({ target }) => {
    target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth + 1);
  }));

  function fill(select, options, value) {
    select.replaceChildren(...options.map((each) => new Option(each, each, false, each === value)));
  }

  function setSlider() {
    const method = block.methods.find((each) => each.xi && each.name === $("xi-method").value);
    if (!method) return;
    $("xi-round").max = method.xi.rounds.length - 1;
    $("xi-round").value = method.xi.rounds.length - 1;
  }

  // The method with the best mean of those that can be compared with training alone.
  function usual() {
    const compared = block.methods.filter((method) => method.runs.some((run) => run.gain));
    const end = (method) => (block.higher ? 1 : -1) * (Curves.finite(method.curve.mean).at(-1) ?? (block.higher ? -Infinity : Infinity));
    return (compared.length ? compared : block.methods).reduce((best, method) => (end(method) > end(best) ? method : best)).name;
  }

  function show(number) {
    block = blocks[number];
    hidden.clear();
    stale = true;
    $("block").value = number;
    $("whole-axis").checked = block.methods.length < 2; // no ends to tell apart: how it got there is what there is to see
    const withXi = block.methods.filter((method) => method.xi).map((method) => method.name);
    fill($("xi-method"), withXi, withXi.at(-1));
    if (block.methods.length) fill($("client-method"), block.methods.map((method) => method.name), usual());
    fill($("client-seed"), block.seeds.map((each) => String(each.seed)), undefined);
    $("seed-choice").hidden = block.seeds.length < 2;
    setSlider();
    route();
  }

  // Where the address asks for a client: its place in the block that is shown, else in the first that has it.
  function asked() {
    const name = new URLSearchParams(location.hash.slice(1)).get("client");
    if (name === null) return null;
    const has = (each) => each.seeds.some(({ clients }) => clients.some((client) => client.name === name));
    const number = has(block) ? blocks.indexOf(block) : blocks.findIndex(has);
    return { name, number };
  }

  function route() {
    const client = asked();
    const missing = client !== null && client.number < 0;
    $("no-client").hidden = !missing;
    if (missing) $("no-client").textContent = `No client is called “${client.name}”; choose one in the table of clients.`;
    if (client !== null && !missing && blocks[client.number] !== block) return show(client.number);
    const open = client !== null && !missing;
    const before = opened;
    $("overview").hidden = open;
    $("client-view").hidden = !open;
    $("overview").classList.toggle("empty", !block.methods.length);
    opened = open ? client.name : null;
    if (open) {
      $("client-place").prepend($("choices"));
      drawClient();
      if (before !== opened) $("client-view").focus();
      return undefined;
    }
    $("clients-place").prepend($("choices"));
    if (stale && block.methods.length) drawOverview();
    if (before !== null) returnTo(before);
    return undefined;
  }

  function drawClient() {
    const place = Clients.clientsOf(block, seed()).findIndex((client) => client.name === opened);
    ClientView.draw(block, shown(), chosen(), seed(), Math.max(0, place), whole());
    document.querySelectorAll("#client-view .wide").forEach((table) => watch.observe(table));
  }

  // Back in the table, at the client that was looked at.
  function returnTo(name) {
    const back = [...document.querySelectorAll("#client-table a")].find((each) => each.textContent === name);
    (back ?? $("h-clients")).scrollIntoView({ block: "center" });
    back?.focus({ preventScroll: true });
  }

  function redraw() {
    stale = true;
    route();
  }

  $("xi-round").addEventListener("input", drawXi);
  $("xi-method").addEventListener("change", () => { setSlider(); drawXi(); });
  for (const id of ["client-method", "client-seed", "whole-axis"]) $(id).addEventListener("change", redraw);
  $("client-search").addEventListener("input", () => Clients.fillTable(block, chosen(), seed()));
  $("block").replaceChildren(...blocks.map((each, i) => new Option(each.label || "all runs", i)));
  $("block").addEventListener("change", (event) => show(Number(event.target.value)));
  $("block-choice").hidden = blocks.length < 2;
  dark.addEventListener("change", redraw);
  window.addEventListener("hashchange", route);
  show(0);
})();
