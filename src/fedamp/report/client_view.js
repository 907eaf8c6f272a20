"use strict";
// One client by itself, "my hospital": its scores and curves by method, whom it listens to and who listens to it.
const ClientView = (() => {
  const { $, element, link, text, signed, some, runOf, clientsOf } = Clients;

  // The client's scores by round, from the packed ones of all clients; and their mean over the counted clients.
  function curves(run, i) {
    run.raw ??= new Float32Array(Uint8Array.from(atob(run.curve.bytes), (sign) => sign.charCodeAt(0)).buffer);
    const m = run.scores.length;
    const row = (k) => run.raw.subarray(k * m, (k + 1) * m);
    const number = (value) => (Number.isFinite(value) ? value : null);
    const count = run.counted.filter(Boolean).length;
    return {
      x: run.curve.rounds,
      own: run.curve.rounds.map((_, k) => number(row(k)[i])),
      mean: run.curve.rounds.map((_, k) => number(row(k).reduce((sum, value, j) => (run.counted[j] ? sum + value : sum), 0) / count)),
    };
  }

  function facts(client) {
    const terms = { group: client.group, "training samples": client.samples, "held-out samples": client.held_out, "test samples": client.test };
    return Object.entries(terms).filter(([, value]) => value !== null)
      .map(([term, value]) => element("div", {}, element("dt", { textContent: term }), element("dd", { textContent: value })));
  }

  function lead(block, method, run, i) {
    const unit = block.unit ? ` ${block.unit}` : "";
    const score = run?.scores[i];
    if (typeof score !== "number") return `${method.name}: ${text(block, score)}.`;
    const gain = run.gain?.[i];
    const said = `With ${method.name}: ${text(block, score)}${unit}`;
    if (typeof gain !== "number") return `${said}.`;
    const alone = `${text(block, run.alone[i])}${unit}`;
    if (Math.abs(gain) < 1e-9) return `${said}, as alone.`;
    return `${said}, ${text(block, Math.abs(gain))}${unit === " %" ? " points" : unit} ${gain > 0 ? "better" : "worse"} than alone (${alone}).`;
  }

  // How many counted clients do better by a method, and the table of its scores.
  function scoreRows(block, seed, i) {
    const looks = Charts.looks(block.methods.map((method) => method.name));
    return block.methods.map((method, place) => {
      const run = runOf(method, seed);
      const score = run?.scores[i];
      const others = run ? run.scores.filter((value, j) => run.counted[j] && typeof value === "number") : [];
      const mean = others.length ? others.reduce((a, b) => a + b, 0) / others.length : null;
      const better = others.filter((value) => (block.higher ? value > score : value < score)).length;
      const gain = run?.gain?.[i];
      return element("tr", {}, element("th", { scope: "row" }, Charts.swatch(looks[place]), ` ${method.name}`),
        element("td", { textContent: run ? text(block, score) : "–" }),
        element("td", { textContent: signed(block, gain), className: gain < -1e-9 ? "loss" : "" }),
        element("td", { textContent: text(block, mean, "–") }),
        element("td", { textContent: typeof score === "number" ? `${better + 1} of ${others.length}` : "–" }));
    });
  }

  function weightRows(entries, clients) {
    const top = entries[0]?.[1] || 1;
    return entries.map(([j, weight]) => {
      const bar = element("span", { className: "bar" });
      bar.style.width = `${(100 * weight) / top}%`;
      return element("tr", {}, element("th", { scope: "row" }, link(clients[j].name)),
        element("td", { textContent: weight.toFixed(3) }), element("td", { className: "bars" }, bar));
    });
  }

  function weights(method, run, clients, i) {
    $("client-weights").hidden = !run?.listens;
    $("client-no-weights").hidden = Boolean(run?.listens);
    $("client-no-weights").textContent = `${method.name} has no weights between clients.`;
    if (!run?.listens) return;
    const own = some(run.own[i], 2);
    $("client-listens-note").textContent = `Weight of its own model: ${own}; others it effectively listens to: ${some(run.others[i], 1)}. Last round.`;
    $("client-listens").replaceChildren(...weightRows(run.listens[i], clients));
    $("client-heard").replaceChildren(...weightRows(run.heard[i], clients));
    $("client-nobody").hidden = run.listens[i].length > 0;
    $("client-unheard").hidden = run.heard[i].length > 0;
  }

  function drawCurves(block, shown, method, seed, i, whole) {
    const lines = shown.flatMap(({ method: each, i: place }) => {
      const run = runOf(each, seed);
      if (!run) return [];
      const { x, own, mean } = curves(run, i);
      const mine = { name: each.name, i: place, x, mean: own, width: each === method ? 4 : 2 };
      const all = { name: `${each.name}, mean of all`, label: "mean of all", i: place, x, mean, width: 1.5, dash: "dot" };
      return each === method ? [mine, all] : [mine];
    });
    const most = Math.max(1, ...lines.flatMap(({ x }) => x.at(-1) ?? 1));
    return Curves.draw($("client-curves"), lines, { label: block.metric, higher: block.higher, whole, most });
  }

  // Fill the view with one client of one seed; `shown` are the methods that are not hidden.
  function draw(block, shown, method, seed, i, whole) {
    const clients = clientsOf(block, seed);
    const run = runOf(method, seed);
    const note = clients[i].note ? ` (${clients[i].note})` : "";
    $("h-client").textContent = clients[i].name + note;
    $("client-lead").textContent = lead(block, method, run, i);
    $("client-facts").replaceChildren(...facts(clients[i]));
    $("client-scores").replaceChildren(...scoreRows(block, seed, i));
    weights(method, run, clients, i);
    const outside = drawCurves(block, shown, method, seed, i, whole);
    $("client-curves-note").textContent = `Its score after each round. Bold: ${method.name}; dotted: the mean of all clients by ${method.name}.${outside}`;
  }

  return { draw };
})();
