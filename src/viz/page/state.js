// The reader's choices. They are stored in the address after '#', so that a bookmark or a reload restores
// them.
(() => {
  "use strict";
  const view = window.attentiveView;

  const first = {
    tab: "", layer: 0, head: 0, heads: [0], query: null, key: null, min: null, per: 0, sort: "layer", scale: "row", at: null,
    theme: "auto", picture: "head", blend: 0.7, features: "order", column: "layer", down: 0, keys: 1,
  };
  view.everyLine = 17;  // from this many lines per query on, all are drawn
  const choices = {
    sort: ["layer", "entropy", "distance", "previous", "first"], scale: ["row", "head"], theme: ["auto", "light", "dark"],
    picture: ["head", "rollout"], features: ["order", "size"], down: [0, 1], keys: [0, 1],
    column: ["layer", "head", "entropy", "entropy_share", "distance", "previous", "first", "sink"],
  };
  const listeners = [];
  view.state = { ...first, heads: [0] };
  view.hover = null;  // the cell under the pointer: { query, key }, each possibly null

  const number = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : undefined);
  const index = (text) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined);
  const list = (text, read) => {
    const values = text.split("_").map(read);
    return values.includes(undefined) ? undefined : values;
  };
  const readers = {
    layer: index, head: index, query: index, key: index, min: number, per: index, blend: number, down: number, keys: number,
    heads: (text) => list(text, index), at: (text) => list(text, number),
  };

  function writeNow() {
    const parts = Object.keys(first)
      .filter((name) => JSON.stringify(view.state[name]) !== JSON.stringify(first[name]))
      .map((name) => `${name}=${[].concat(view.state[name]).join("_")}`);
    const hash = "#" + parts.join("&");
    if (hash === (location.hash || "#")) return;
    history.replaceState(null, "", location.pathname + location.search + hash);
    written = performance.now();
  }

  // Browsers limit changes of the address to about two hundred in half a minute, fewer than a drag makes.
  let waiting = 0;
  let written = -Infinity;
  function write() {
    clearTimeout(waiting);
    waiting = setTimeout(writeNow, Math.max(0, written + 200 - performance.now()));
  }

  // Replaces invalid values, from an address or a click, by valid ones.
  function settle(state) {
    const layers = view.data.layers;
    state.layer = view.clamp(state.layer, 0, layers.length - 1);
    const layer = layers[state.layer];
    state.head = view.clamp(state.head, 0, layer.heads.length - 1);
    state.heads = [...new Set(state.heads.filter((n) => n < layer.heads.length))].sort((a, b) => a - b);
    if (state.heads.length === 0) state.heads = [state.head];
    if (state.query !== null && state.query >= layer.queries) state.query = null;
    if (state.key !== null && state.key >= layer.keys) state.key = null;
    if (state.min !== null) state.min = view.clamp(state.min, 0, 1);
    state.per = Math.min(state.per, view.everyLine);
    state.blend = view.clamp(state.blend, 0, 1);
    if (state.at && (state.at.length !== 3 || !(state.at[2] > 0))) state.at = null;
    for (const [name, allowed] of Object.entries(choices)) if (!allowed.includes(state[name])) state[name] = first[name];
  }

  const notify = view.onceAFrame(() => listeners.forEach((listener) => listener()));

  view.onChange = (listener) => listeners.push(listener);
  view.redraw = notify;

  view.set = (changes) => {
    if (changes.layer !== undefined && changes.layer !== view.state.layer) view.hover = null;
    Object.assign(view.state, changes);
    settle(view.state);
    write();
    notify();
  };

  view.setHover = (query, key) => {
    const next = query === null && key === null ? null : { query, key };
    if (JSON.stringify(next) === JSON.stringify(view.hover)) return;
    view.hover = next;
    notify();
  };

  view.readHash = () => {
    const state = { ...first, heads: [0] };
    for (const part of location.hash.slice(1).split("&")) {
      const [name, text = ""] = part.split("=");
      if (!(name in first)) continue;
      const value = readers[name] ? readers[name](text) : text;
      if (value !== undefined) state[name] = value;
    }
    view.set(state);
  };

  view.layer = () => view.data.layers[view.state.layer];
  view.head = () => view.layer().heads[view.state.head];
  view.chosenHeads = () => view.state.heads.map((n) => view.layer().heads[n]);

  // The cell that is described: the one under the pointer, otherwise the chosen one.
  view.point = () => view.hover || { query: view.state.query, key: view.state.key };

  // Changes the layer and keeps the choice of heads, cell and visible part if the new layer has them.
  view.toLayer = (layer) => {
    const from = view.layer();
    const to = view.data.layers[view.clamp(layer, 0, view.data.layers.length - 1)];
    const same = from.queries === to.queries && from.keys === to.keys;
    view.set({ layer: to.index, ...(same ? {} : { at: null, query: null, key: null }) });
  };
})();
