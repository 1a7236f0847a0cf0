// The bar above the picture: layer, heads, and the controls of a single view. Each control is { id, node,
// refresh }.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element } = view;

  function field(label, input) {
    return element("label", { class: "field" }, element("span", {}, label), input);
  }

  // A select element whose options are [value, text].
  view.selectControl = (id, label, name, options) => {
    const chosen = element("select", { "data-state": name, onchange: () => view.set({ [name]: chosen.value }) });
    for (const [value, text] of options) chosen.append(element("option", { value }, text));
    return { id, node: field(label, chosen), refresh: () => (chosen.value = view.state[name]) };
  };

  view.sliderControl = (id, label, name, { min, max, step, value = () => view.state[name], text = view.number }) => {
    const shown = element("output", {});
    const input = element("input", { type: "range", min, max, step, "data-state": name });
    input.addEventListener("input", () => view.set({ [name]: Number(input.value) }));
    const refresh = () => {
      input.value = value();
      shown.textContent = text(value());
    };
    return { id, node: element("div", { class: "field" }, field(label, input), shown), refresh };
  };

  function layerControl() {
    const list = element("select", { "data-state": "layer", onchange: () => view.toLayer(Number(list.value)) });
    view.data.layers.forEach((layer, n) => list.append(element("option", { value: n }, layer.name)));
    return { id: "layer", node: field("Layer", list), refresh: () => (list.value = view.state.layer) };
  }

  // Arrow keys move within a group of buttons, of which Tab reaches only one.
  view.roving = (group, steps = () => ({ ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 })) => {
    const buttons = () => Array.from(group.querySelectorAll("button:not([hidden])"));
    const enter = (one) => buttons().forEach((each) => (each.tabIndex = each === one ? 0 : -1));
    group.addEventListener("focusin", (event) => enter(event.target.closest("button")));
    group.addEventListener("keydown", (event) => {
      const all = buttons();
      const from = all.indexOf(document.activeElement);
      const jump = { Home: -from, End: all.length - 1 - from, ...steps() }[event.key];
      if (jump === undefined || from < 0) return;
      const to = all[from + jump];
      if (to) to.focus();
      event.preventDefault();
      event.stopPropagation();
    });
    return { settle: (one) => enter(one || buttons()[0]) };
  };

  function toggleHead(n, many) {
    if (!many) return view.set({ head: n, heads: [n] });
    const { heads } = view.state;
    const next = heads.includes(n) ? heads.filter((each) => each !== n) : [...heads, n];
    view.set({ heads: next.length ? next : [n], head: next.includes(n) ? n : (next[0] ?? n) });
  }

  // The heads of the layer: several can be chosen in a view with `many`, only one in the others.
  function headsControl() {
    const group = element("div", { class: "chips", role: "group", "aria-label": "Heads" });
    const all = element("button", { type: "button", class: "plain", onclick: () => view.set(everyHead()) }, "all");
    const node = element("div", { class: "field heads" }, element("span", {}, "Heads"), group, all);
    const roving = view.roving(group);
    let drawn = null;
    const everyHead = () => ({ heads: view.layer().heads.map((_, n) => n) });
    function rebuild(layer) {
      const chip = (head, n) =>
        element("button", { type: "button", "aria-label": head.name, onclick: () => toggleHead(n, view.shownView().many),
          onpointerenter: () => view.showAlone(head), onpointerleave: () => view.showAlone(null) },
          element("i", {}), String(head.number));
      group.replaceChildren(...layer.heads.map(chip));
      drawn = layer;
    }
    function refresh() {
      const many = Boolean(view.shownView().many);
      if (drawn !== view.layer()) rebuild(view.layer());
      const usable = view.shownView().headNumbers ? view.shownView().headNumbers() : null;
      node.firstChild.textContent = many ? "Heads" : "Head";
      all.hidden = !many || drawn.heads.length === 1;
      Array.from(group.children).forEach((button, n) => {
        const pressed = many ? view.state.heads.includes(n) : view.state.head === n;
        button.setAttribute("aria-pressed", pressed);
        button.hidden = Boolean(usable) && !usable.includes(drawn.heads[n].number);
        button.style.setProperty("--own", view.headColour(drawn.heads[n]));
      });
      if (!group.contains(document.activeElement)) roving.settle(group.children[view.state.head]);
    }
    return { id: "heads", node, refresh };
  }

  view.buttonsControl = (id, label, buttons) => {
    const made = buttons.map(([text, name, action]) =>
      element("button", { type: "button", "aria-label": name, title: name, onclick: action }, text));
    return { id, node: element("div", { class: "field", role: "group", "aria-label": label }, ...made), refresh: () => {} };
  };

  view.makeControls = () => {
    const sorts = [["layer", "layer"], ["entropy", "entropy"], ["distance", "distance"],
      ["previous", "share of the previous token"], ["first", "share of the first token"]];
    const scales = [["row", "share of the query’s largest"], ["head", "share of the head’s largest"]];
    const pictures = [["head", "attention of the head"], ["rollout", "rollout up to this layer"]];
    return [
      layerControl(),
      headsControl(),
      view.sliderControl("per", "Lines of a query", "per",
        { min: 1, max: view.everyLine, step: 1, value: view.linesOfEach, text: (n) => (n < view.everyLine ? String(n) : "all") }),
      view.sliderControl("min", "Weights from", "min", { min: 0, max: 0.5, step: 0.001, value: view.leastWeight }),
      view.selectControl("sort", "Order by", "sort", sorts),
      view.selectControl("scale", "Colours", "scale", scales),
      view.buttonsControl("zoom", "Zoom", [["−", "Zoom out", () => view.zoomMap(1 / 1.5)], ["+", "Zoom in", () => view.zoomMap(1.5)],
        ["Fit", "Show the whole map", () => view.set({ at: null })]]),
      view.selectControl("picture", "Over the patches", "picture", pictures),
      view.sliderControl("blend", "Opacity", "blend", { min: 0, max: 1, step: 0.05 }),
      view.selectControl("features", "Order by", "features", [["order", "feature"], ["size", "size of q·k"]]),
      view.buttonsControl("copy", "Table", [["Copy table", "Copy the table as tab-separated text", () => view.copyStatistics()]]),
    ];
  };
})();

// The panel next to the picture: the numbers of the cell under the pointer, and the top keys of the query as
// tables. It also serves readers who cannot see the picture.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element, isolated, number } = view;

  function term(name, ...value) {
    return element("div", {}, element("dt", {}, name), element("dd", {}, ...value));
  }

  view.weightText = (head, i, j) => {
    const weight = head.weight(i, j);
    if (weight === null) return "hidden";
    return weight === 0 ? zeroText(head, i) : `${number(weight)} ± ${number(head.step(i) / 2, 2)}`;
  };
  // A weight of 0 steps is only known to be less than half a step.
  const zeroText = (head, i) => (head.step(i) > 0 ? `< ${number(head.step(i) / 2, 2)}` : "0");
  view.scoreText = (score) => (score === null ? "–" : (score.below ? "< " : "") + number(score.value));
  view.rankText = ({ rank, exact, visible }) => `${exact ? "" : "about "}${view.count(rank)} of ${view.count(visible)}`;

  function cellTerms(head, i, j) {
    if (head.steps(i, j) < 0) return [term("Weight", "hidden by the mask")];
    const terms = [term("Weight", view.weightText(head, i, j)), term("Step", number(head.step(i)))];
    if (head.logsumexp) terms.push(term("Score", view.scoreText(head.score(i, j))));
    return [...terms, term("Rank", view.rankText(head.rank(i, j)))];
  }

  function sideTerm(name, tokens, position) {
    return position === null ? null : term(name, String(position), ...(tokens.list ? [" ", isolated(tokens.at(position))] : []));
  }

  const hint = "Point at the picture, or move in it with the arrow keys, to read its numbers.";
  const shownRollout = () => (view.shownView().rollout ? view.shownView().rollout() : null);

  function readout(layer, head, { query, key }) {
    if (query === null && key === null) return element("p", { class: "readout quiet" }, hint);
    const list = element("dl", { class: "readout" });
    list.append(...[sideTerm("Query", layer.queryTokens, query), sideTerm("Key", layer.keyTokens, key)].filter(Boolean));
    const rollout = shownRollout();
    if (rollout && key !== null) list.append(term("Rollout", number(rollout[key])));
    else if (query !== null && key !== null && head.ready) list.append(...cellTerms(head, query, key));
    return list;
  }

  function topRow(head, query, key) {
    const weight = head.weight(query, key);
    const bar = element("td", { class: "weight", style: `--share:${view.clamp(weight, 0, 1)};--own:${view.headColour(head)}` },
      weight === 0 ? zeroText(head, query) : number(weight));
    return element("tr", {}, keyCell(head.layer.keyTokens, key), bar, head.logsumexp ? element("td", {}, view.scoreText(head.score(query, key))) : null);
  }

  function keyCell(tokens, key) {
    return element("td", {}, tokens.list ? [element("small", {}, String(key)), " ", isolated(tokens.at(key))] : String(key));
  }

  // A table of the keys with the largest rollout, shown in place of the head's keys.
  function rolloutTable(layer, rollout) {
    const keys = Array.from(rollout, (_, key) => key).sort((a, b) => rollout[b] - rollout[a]).slice(0, 8);
    const row = (key) => element("tr", {}, keyCell(layer.keyTokens, key), element("td", {}, number(rollout[key])));
    const header = ["Key", "Rollout"].map((text) => element("th", { scope: "col" }, text));
    return element("table", { class: "top" }, element("caption", {}, "Largest rollout of the class token"),
      element("thead", {}, element("tr", {}, header)), element("tbody", {}, keys.map(row)));
  }

  function topTable(head, query) {
    const keys = head.topKeys(query);
    const title = element("caption", {}, element("i", { style: `--own:${view.headColour(head)}` }), `Top keys of ${head.name}`);
    const header = ["Key", "Weight", ...(head.logsumexp ? ["Score"] : [])].map((text) => element("th", { scope: "col" }, text));
    const rows = keys.map((key) => topRow(head, query, key));
    if (!keys.length) rows.push(element("tr", {}, element("td", { colspan: header.length }, "This query sees no key.")));
    return element("table", { class: "top" }, title, element("thead", {}, element("tr", {}, header)), element("tbody", {}, rows));
  }

  // The query whose top keys are listed. If none is chosen: the class token of an image, otherwise the last
  // query, which sees most keys.
  view.listedQuery = () => view.point().query ?? view.state.query ?? (view.shownView().id === "image" ? 0 : view.layer().queries - 1);

  view.makeDetails = () => {
    const cell = element("div", {});
    const heading = element("h2", {});
    const tables = element("div", { class: "tables" });
    const note = element("p", { class: "note" });
    let listed = "";
    let resting = 0;
    // While the pointer moves, the tables are not updated: a dozen of them take longer than the picture.
    function refreshTables(layer, heads, query) {
      const name = [layer.index, query, view.theme().dark, shownRollout() !== null, ...heads.map((head) => [head.index, head.ready])].join();
      clearTimeout(resting);
      if (name === listed) return;
      if (view.hover) resting = setTimeout(() => fillTables(layer, heads, query, name), 80);
      else fillTables(layer, heads, query, name);
    }
    function fillTables(layer, heads, query, name) {
      listed = name;
      heading.replaceChildren("Query ", String(query), ...(layer.queryTokens.list ? [" ", isolated(layer.queryTokens.at(query))] : []));
      const rollout = shownRollout();
      note.hidden = rollout !== null;
      if (rollout) return tables.replaceChildren(rolloutTable(layer, rollout));
      const ready = heads.filter((head) => head.ready);
      tables.replaceChildren(...ready.map((head) => topTable(head, query)));
      if (ready.length === 0) return (note.textContent = "");
      const step = number(Math.max(...ready.map((head) => head.step(query))));
      note.textContent = `Weights of this query are shown in steps of ${step}: each is within half a step of the tensor’s.`;
    }
    function refresh() {
      const layer = view.layer();
      cell.replaceChildren(readout(layer, view.head(), view.point()));
      const heads = view.shownView().many ? view.chosenHeads() : [view.head()];
      refreshTables(layer, heads, view.listedQuery());
    }
    return { node: element("div", {}, cell, heading, tables, note), refresh };
  };

  // The text that a screen reader speaks for a cell.
  view.spokenCell = (head, i, j) => {
    const { queryTokens, keyTokens } = head.layer;
    const names = `${queryTokens.named(i)}, ${keyTokens.named(j)}`;
    if (!head.ready) return names;
    if (head.steps(i, j) < 0) return `${names}: hidden`;
    return `${names}: weight ${number(head.weight(i, j))}, rank ${view.rankText(head.rank(i, j))}`;
  };
})();

// Selects the lines that the head view draws: the strongest of each query, or all of one query or key.
(() => {
  "use strict";
  const view = window.attentiveView;
  const most = 6000;  // lines drawn at once; the strongest are kept
  const buckets = 256;
  let known = {};  // the most recent result

  // Calls visit(i, j, weight) for every weight of at least `min` that a query in [first, end) gives to a key
  // it sees.
  function eachWeight(head, min, visit, first = 0, end = head.layer.queries) {
    const { mask, weights } = head;
    for (let i = first; i < end; i++) {
      const step = head.step(i);
      if (!(step > 0)) continue;
      const least = Math.max(1, Math.ceil(min / step - 1e-6));
      const base = mask.offset[i] - mask.first[i];
      for (let j = mask.first[i]; j < mask.end[i]; j++) {
        const steps = weights[base + j];
        if (steps >= least && (!mask.holes || mask.place(i, j) >= 0)) visit(i, j, steps * step);
      }
    }
  }
  const bucketOf = (weight) => Math.min(buckets - 1, Math.floor(weight * buckets));

  // The lowest bucket of weights to draw, so that no more than `most` lines are drawn.
  function lowestBucket(counts) {
    let total = 0;
    for (let n = buckets - 1; n >= 0; n--) {
      total += counts[n];
      if (total > most) return Math.min(n + 1, buckets - 1);
    }
    return 0;
  }

  // The strongest weights of a query over all heads, at most `per`, as [head, key, weight, …], weakest first.
  function strongestOf(heads, query, min, per) {
    const best = [];
    let seen = 0;
    heads.forEach((head, n) => eachWeight(head, min, (_, key, weight) => {
      seen++;
      if (best.length === per && weight <= best[0][2]) return;
      if (best.length === per) best.shift();
      let at = best.length;
      while (at > 0 && best[at - 1][2] > weight) at--;
      best.splice(at, 0, [n, key, weight]);
    }, query, query + 1));
    return { best, left: seen - best.length };
  }

  // Calls visit(head, i, j, weight) for the requested lines; returns how many were left out.
  function eachWanted(heads, min, per, visit) {
    let left = 0;
    if (per >= view.everyLine) heads.forEach((head, n) => eachWeight(head, min, (i, j, weight) => visit(n, i, j, weight)));
    else for (let i = 0; i < heads[0].layer.queries; i++) {
      const found = strongestOf(heads, i, min, per);
      left += found.left;
      for (const [n, j, weight] of found.best) visit(n, i, j, weight);
    }
    return left;
  }

  function collect(heads, min, per) {
    const counts = new Uint32Array(buckets);
    eachWanted(heads, min, per, (n, i, j, weight) => counts[bucketOf(weight)]++);
    const lowest = lowestBucket(counts);
    const flats = heads.map(() => []);
    let drawn = 0;
    let weak = 0;
    const left = eachWanted(heads, min, per, (n, i, j, weight) => {
      if (bucketOf(weight) < lowest || drawn >= most) return weak++;
      flats[n].push(i, j, weight);
      return drawn++;
    });
    return { flats, left: left + weak };
  }

  // Returns { flat: [query, key, weight, …], left } for each head: the `per` strongest lines of each query
  // over all heads together. `left`, the number of lines that were not drawn, is set in the first head and 0
  // in the others.
  view.strongLines = (heads, min, per) => {
    if (heads.length === 0) return [];
    const name = [...heads.map((head) => `${head.layer.index}.${head.index}`), min, per].join();
    if (known.name !== name) known = { name, ...collect(heads, min, per) };
    return known.flats.map((flat, n) => ({ flat, left: n === 0 ? known.left : 0 }));
  };

  // Defaults that depend on the length of the text: fewer lines if there are more tokens or heads, and only
  // weights of at least twice the mean.
  view.linesOfEach = () => {
    const largest = view.chosenHeads().length > 1 ? 6 : view.everyLine - 1;
    return view.state.per || view.clamp(Math.round(512 / view.layer().queries), 1, largest);
  };
  view.leastWeight = () => view.state.min ?? Math.min(0.05, Number((2 / view.layer().keys).toPrecision(2)));

  view.linesOfQuery = (head, query, min) => {
    const flat = [];
    for (let j = head.mask.first[query]; j < head.mask.end[query]; j++) {
      const weight = head.weight(query, j);
      if (weight !== null && weight > 0 && weight >= min) flat.push(query, j, weight);
    }
    return { flat, left: 0 };
  };

  view.linesOfKey = (head, key, min) => {
    const flat = [];
    for (let i = 0; i < head.layer.queries; i++) {
      const weight = head.weight(i, key);
      if (weight !== null && weight > 0 && weight >= min) flat.push(i, key, weight);
    }
    return { flat, left: 0 };
  };
})();
