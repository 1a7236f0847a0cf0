// The features view: how the score of a pair is computed, as q times k for each feature.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element, number } = view;

  const stage = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "chart of features" });
  const box = element("div", { class: "stagebox short" }, stage);
  const sum = element("p", { class: "sum" });
  const chosen = { query: element("select", {}), key: element("select", {}) };
  const field = (label, list) => element("label", { class: "field" }, element("span", {}, label), list);
  const pair = element("div", { class: "pair" }, field("Query", chosen.query), field("Key", chosen.key));
  const node = element("div", { class: "neurons" }, pair, box, sum);
  const body = element("tbody", {});
  const titles = ["Feature", "q", "k", "q·k"].map((text) => element("th", { scope: "col" }, text));
  const table = element("table", { class: "features" }, element("caption", {}, "Features of the pair"),
    element("thead", {}, element("tr", {}, titles)), body);
  let feature = null;  // under the pointer, or chosen with the arrow keys
  for (const [name, list] of Object.entries(chosen)) list.addEventListener("change", () => view.set({ [name]: Number(list.value) }));

  const embedded = (layer, head) => layer.neurons.find((each) => each.head === head.number) || layer.neurons[0];

  // The data of the pair that is shown: { q, k, scale, order, query, key, head }.
  function shownPair() {
    const layer = view.layer();
    const raw = embedded(layer, view.head());
    const head = layer.heads.find((each) => each.number === raw.head);
    raw.values ||= { q: view.numbers(raw.q, "Float32"), k: view.numbers(raw.k, "Float32") };
    const width = raw.values.q.length / layer.queries;
    const query = view.state.query ?? layer.queries - 1;
    const key = view.state.key ?? head.topKeys(query)[0] ?? 0;
    const q = raw.values.q.subarray(query * width, (query + 1) * width);
    const k = raw.values.k.subarray(key * width, (key + 1) * width);
    const order = Array.from(q, (_, n) => n);
    if (view.state.features === "size") order.sort((a, b) => Math.abs(q[b] * k[b]) - Math.abs(q[a] * k[a]));
    return { q, k, scale: raw.scale, order, query, key, head, layer };
  }

  const largest = (values) => values.reduce((most, each) => Math.max(most, Math.abs(each)), 0) || 1;
  const left = 56;
  function frameFor(count, width) {
    const size = view.clamp((width - left - 10) / count, 3, 34);
    return { size, bar: Math.max(size - 1, size * 0.8), width: left + size * count + 10, height: 330 };
  }

  function drawStrip(surface, frame, values, y, name, order) {
    const theme = view.theme();
    const most = largest(values);
    surface.text(left - 10, y + 15, name, { fill: theme.ink, align: "right", bold: true });
    order.forEach((n, place) => surface.rect(left + place * frame.size, y, frame.bar, 30, view.signedColour(values[n] / most)));
  }

  function drawBars(surface, frame, products, order) {
    const theme = view.theme();
    const most = largest(products);
    const [middle, room] = [212, 92];
    surface.text(left - 10, middle, "q·k", { fill: theme.ink, align: "right", bold: true });
    surface.text(left - 10, middle - room + 6, number(most), { size: 11, fill: theme.soft, align: "right" });
    surface.text(left - 10, middle + room - 6, number(-most), { size: 11, fill: theme.soft, align: "right" });
    surface.rect(left, middle - 0.5, frame.size * order.length, 1, theme.soft);
    order.forEach((n, place) => {
      const height = (products[n] / most) * room;
      const x = left + place * frame.size;
      const y = height > 0 ? middle - height : middle;
      surface.rect(x, y, frame.bar, Math.abs(height), view.signedColour(height > 0 ? 1 : -1));
    });
    const step = Math.ceil(26 / frame.size);
    const look = { size: 11, fill: theme.soft, align: "center" };
    for (let place = 0; place < order.length; place += step) {
      surface.text(left + (place + 0.5) * frame.size, 318, String(order[place]), look);
    }
  }

  function paint(surface, frame) {
    const { q, k, order } = shownPair();
    drawStrip(surface, frame, q, 8, "q", order);
    drawStrip(surface, frame, k, 50, "k", order);
    drawBars(surface, frame, q.map((value, n) => value * k[n]), order);
    const place = order.indexOf(feature);
    if (place >= 0) surface.frame(left + place * frame.size - 1, 4, frame.size + 1, 300, view.theme().ink, 1.5);
  }

  function fillList(list, tokens) {
    if (list.owner === tokens) return;
    list.owner = tokens;
    const option = (n) => element("option", { value: n }, tokens.list ? `${n} ${tokens.at(n)}` : String(n));
    list.replaceChildren(...Array.from({ length: tokens.count }, (_, n) => option(n)));
  }

  function refreshSum({ q, k, scale, query, key, head }) {
    const total = q.reduce((all, value, n) => all + value * k[n], 0);
    const parts = [`q·k = ${number(total)}; times ${number(scale)} it is ${number(total * scale)}.`];
    if (head.ready) parts.push(` The weight of this key is ${view.weightText(head, query, key)}.`);
    if (head.ready && head.logsumexp && head.steps(query, key) >= 0) {
      const score = view.scoreText(head.score(query, key));
      parts.push(` Log weight + logsumexp is ${score}: a difference is what biases and caps of the scores do.`);
    }
    if (feature !== null) {
      const product = number(q[feature] * k[feature]);
      parts.push(` Feature ${feature}: ${number(q[feature])} · ${number(k[feature])} = ${product}.`);
    }
    sum.textContent = parts.join("");
  }

  let listed = "";
  function refreshTable({ q, k, order, query, key, head, layer }) {
    const name = [layer.index, head.index, query, key, view.state.features].join();
    if (name === listed) return;
    listed = name;
    const cell = (value) => element("td", {}, number(value));
    const row = (n) => element("tr", {}, element("th", { scope: "row" }, String(n)), cell(q[n]), cell(k[n]), cell(q[n] * k[n]));
    body.replaceChildren(...order.map(row));
  }

  let frame = null;
  view.views.push({
    id: "neurons", title: "Features", node, stage, aside: true, controls: ["layer", "heads", "features"],
    asideNode: table,
    offered: () => view.data.layers.some((layer) => layer.neurons.length > 0),
    shows: (layer) => layer.neurons.length > 0,
    headNumbers: () => view.layer().neurons.map((each) => each.head),
    needs: () => [shownPair().head],
    refresh() {
      const shown = shownPair();
      if (shown.head !== view.head()) return view.set({ head: shown.head.index });
      for (const [name, tokens] of [["query", shown.layer.queryTokens], ["key", shown.layer.keyTokens]]) {
        fillList(chosen[name], tokens);
        chosen[name].value = shown[name];
      }
      if (feature >= shown.q.length) feature = null;
      frame = frameFor(shown.q.length, box.clientWidth);
      paint(new view.CanvasSurface(stage, frame.width, frame.height), frame);
      refreshSum(shown);
      refreshTable(shown);
      stage.setAttribute("aria-label", `${this.caption()}. Left and Right choose a feature; the table lists them all.`);
    },
    extent: () => ({ width: Math.max(frame.width, 360), height: frame.height + 30 }),
    drawOn(surface) {
      paint(surface, frame);
      surface.text(left, frame.height + 12, this.caption(), { size: 12, fill: view.theme().soft, room: surface.width - left });
    },
    caption() {
      const { layer, head, query, key } = shownPair();
      return `Features of ${layer.name}, ${head.name}: ${layer.queryTokens.named(query)}, ${layer.keyTokens.named(key)}`;
    },
    fileDetail: () => `${view.layer().path}-${shownPair().head.number}`,
  });

  function point(place) {
    const { order, q, k } = shownPair();
    const next = place >= 0 && place < order.length ? order[place] : null;
    if (next === feature) return;
    feature = next;
    view.redraw();
    if (feature === null) return;
    const product = number(q[feature] * k[feature]);
    view.tell(`feature ${feature}: q ${number(q[feature])}, k ${number(k[feature])}, product ${product}`);
  }
  stage.addEventListener("pointermove", (event) => {
    point(Math.floor((event.clientX - stage.getBoundingClientRect().left - left) / frame.size));
  });
  stage.addEventListener("pointerleave", () => point(-1));
  stage.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const { order } = shownPair();
    point(feature === null ? 0 : view.clamp(order.indexOf(feature) + step, 0, order.length - 1));
  });
})();
