"use strict";
// The clients of one seed: who gains and who loses, and a table with search and sort.
const Clients = (() => {
  const { plain, css, colour, layout, config } = Charts;
  const $ = (id) => document.getElementById(id);
  const element = (tag, more = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), more);
    made.append(...children);
    return made;
  };
  const address = (name) => "#client=" + encodeURIComponent(name);
  const link = (name) => element("a", { href: address(name), textContent: name });
  let sorted = { column: 0, down: false };

  // A score as people read it: with as many digits as its metric has; a word where there is none.
  function text(block, value, none = "no score") {
    if (value === null || value === undefined) return none;
    if (typeof value === "string") return value;
    return block.decimals === null ? String(Number(value.toPrecision(4))) : value.toFixed(block.decimals);
  }
  const signed = (block, value) => (typeof value === "number" ? (value > 0 ? "+" : "") + text(block, value).replace("-", "−") : "–");
  const some = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "–");
  const runOf = (method, seed) => method.runs.find((run) => run.seed === seed);
  const clientsOf = (block, seed) => block.seeds.find((each) => each.seed === seed).clients;
  const groupColour = (group) => colour(1 + (group % 8));

  // Each client's gain against training alone, the losers first.
  function drawGains(plot, note, block, method, seed, open) {
    const run = runOf(method, seed);
    const clients = clientsOf(block, seed);
    const bars = clients.map((client, i) => ({ client, gain: run?.gain?.[i] })).filter(({ gain }) => typeof gain === "number")
      .sort((a, b) => a.gain - b.gain);
    const diverged = clients.filter((_, i) => typeof run?.scores[i] === "string" && typeof run.alone?.[i] === "number").length;
    const lose = bars.filter(({ gain }) => gain < -1e-9);
    const win = bars.filter(({ gain }) => gain > 1e-9);
    const places = bars.map((_, i) => i);
    const few = bars.length <= (plot.clientWidth < 420 ? 12 : 30);
    const short = bars.map(({ client }) => plain(client.name.replace(/^client (?=\d+$)/, "").slice(0, 14)));
    const grouped = bars.some(({ client }) => client.group !== null);
    const paint = ({ client, gain }) => (grouped ? groupColour(client.group ?? 7) : colour(gain < 0 ? 7 : 3));
    const unit = block.unit ? ` ${block.unit === "%" ? "points" : block.unit}` : "";
    const trace = {
      type: "bar", x: places, y: bars.map(({ gain }) => gain), marker: { color: bars.map(paint) }, textposition: "none",
      text: bars.map(({ client, gain }) => `${plain(client.name)}: ${signed(block, gain)}${plain(unit)}${client.group === null ? "" : `, group ${client.group}`}`),
      hovertemplate: "%{text}<extra></extra>",
    };
    Plotly.react(plot, [trace], layout({
      bargap: bars.length < 6 ? 0.6 : 0.15,
      xaxis: { title: { text: few ? "client" : `${bars.length} clients` }, showgrid: false, ...(few ? { tickvals: places, ticktext: short } : { showticklabels: false }) },
      yaxis: { title: { text: `better than alone${block.unit === "%" ? ", points" : ""}` }, zeroline: true, zerolinecolor: css("--ink"), zerolinewidth: 1.5 },
    }), config);
    plot.removeAllListeners("plotly_click");
    plot.on("plotly_click", ({ points }) => open(bars[points[0].x].client.name));
    const worst = lose[0] ? ` Most: ${lose[0].client.name}, by ${text(block, -lose[0].gain)}${unit}.` : "";
    const without = clients.length - bars.length - diverged;
    note.replaceChildren(
      element("strong", { textContent: `${lose.length + diverged} of ${bars.length + diverged} clients do worse than alone, ${win.length} better.` }), worst,
      diverged ? ` ${diverged} diverged and ${diverged === 1 ? "has" : "have"} no bar.` : "",
      ` Score at ${method.name}'s best round, less ${block.alone ?? "the model trained alone beside it"} at its own${block.higher ? "" : "; for errors the other way round"}.`,
      without ? ` ${without} without a score in both.` : "", " A click opens a client. ", ...(grouped ? groupKey(bars) : []),
    );
  }

  function groupKey(bars) {
    const groups = [...new Set(bars.map(({ client }) => client.group))].sort((a, b) => a - b);
    return [element("span", { className: "key" }, "Colour: true group ", ...groups.flatMap((group) => {
      const dot = element("i");
      dot.style.background = groupColour(group ?? 7);
      return [dot, `${group} `];
    }))];
  }

  // What the table shows: for each column its heading, a value to sort by, and a text.
  function columns(block, method, seed) {
    const clients = clientsOf(block, seed);
    const run = runOf(method, seed);
    const column = (heading, value, shown) => ({ heading, value, shown });
    const scores = block.methods.map((each) => {
      const own = runOf(each, seed);
      return column(each.name, (i) => own?.scores[i], (i) => (own ? text(block, own.scores[i]) : "–"));
    });
    const beside = run?.alone && !block.alone ? [column("alone", (i) => run.alone[i], (i) => text(block, run.alone[i]))] : [];
    const of = ` (${method.name})`;
    return [
      column("client", (i) => clients[i].name, null),
      ...(clients.some((client) => client.group !== null) ? [column("group", (i) => clients[i].group, (i) => clients[i].group ?? "–")] : []),
      column("samples", (i) => clients[i].samples, (i) => clients[i].samples ?? "–"),
      ...scores, ...beside,
      ...(run?.gain ? [column("gain" + of, (i) => run.gain[i], (i) => signed(block, run.gain[i]))] : []),
      ...(run?.others ? [
        column("others it listens to" + of, (i) => run.others[i], (i) => some(run.others[i], 1)),
        column("weight of its own model" + of, (i) => run.own[i], (i) => some(run.own[i], 2)),
      ] : []),
    ];
  }

  // Words by the alphabet, with numbers in them as numbers; what is missing comes last, whichever way.
  function compare(a, b, down) {
    const missing = (value) => value === null || value === undefined || value === "not finite";
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const order = typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
    return down ? -order : order;
  }

  function fillTable(block, method, seed) {
    const clients = clientsOf(block, seed);
    const all = columns(block, method, seed);
    if (sorted.column >= all.length) sorted = { column: 0, down: false };
    const by = all[sorted.column];
    const asked = $("client-search").value.trim().toLowerCase();
    const found = clients.map((_, i) => i).filter((i) => clients[i].name.toLowerCase().includes(asked));
    found.sort((a, b) => compare(by.value(a), by.value(b), sorted.down));
    const heads = all.map(({ heading }, place) => {
      const button = element("button", { type: "button", textContent: heading });
      button.addEventListener("click", () => {
        sorted = { column: place, down: sorted.column === place ? !sorted.down : place > 0 };
        fillTable(block, method, seed);
        $("client-table").tHead.rows[0].cells[place].firstChild.focus();
      });
      const head = element("th", { scope: "col" }, button);
      head.setAttribute("aria-sort", place !== sorted.column ? "none" : sorted.down ? "descending" : "ascending");
      return head;
    });
    const rows = found.map((i) => {
      const note = clients[i].note ? [` (${clients[i].note})`] : [];
      const cells = all.slice(1).map(({ heading, shown, value }) => element("td", {
        textContent: shown(i), className: heading.startsWith("gain (") && value(i) < -1e-9 ? "loss" : "",
      }));
      return element("tr", {}, element("th", { scope: "row", title: clients[i].name }, link(clients[i].name), ...note), ...cells);
    });
    $("client-table").replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
    $("client-count").textContent = found.length === clients.length ? `${clients.length} clients` : `${found.length} of ${clients.length} clients`;
  }

  return { $, element, link, text, signed, some, runOf, clientsOf, drawGains, fillTable };
})();
