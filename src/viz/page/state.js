// Colours of weights, of heads and of signed numbers. They differ mainly in lightness, so that they work with
// colour blindness and in grey print. The light and the dark theme have separate colours.
(() => {
  "use strict";
  const view = window.attentiveView;

  const gamma = (x) => (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055);
  const byte = (x) => Math.round(255 * gamma(view.clamp(x, 0, 1)));

  // Converts OKLCH (Björn Ottosson's perceptually uniform colour space) to sRGB bytes: lightness 0..1,
  // chroma, hue in degrees.
  function fromOklch(lightness, chroma, hue) {
    const a = chroma * Math.cos((hue * Math.PI) / 180);
    const b = chroma * Math.sin((hue * Math.PI) / 180);
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
    const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
    return [
      byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
      byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
      byte(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
    ];
  }
  const css = ([r, g, b]) => `rgb(${r},${g},${b})`;

  // Lightness, chroma and hue at 0, 1/3, 2/3 and 1; lightness is monotonic.
  const weightStops = {
    light: [[0.985, 0.012, 110], [0.8, 0.1, 165], [0.54, 0.1, 235], [0.25, 0.1, 285]],
    dark: [[0.2, 0.03, 285], [0.43, 0.11, 275], [0.68, 0.12, 190], [0.95, 0.15, 105]],
  };
  // The second eight hues lie between the first eight and are darker.
  const headHues = [258, 62, 162, 345, 205, 100, 305, 28, 282, 82, 184, 8, 232, 130, 325, 48];
  const headLightness = {
    light: [0.5, 0.58, 0.52, 0.5, 0.56, 0.56, 0.44, 0.46, 0.35, 0.43, 0.38, 0.36, 0.38, 0.4, 0.34, 0.35],
    dark: [0.76, 0.8, 0.78, 0.74, 0.82, 0.86, 0.72, 0.7, 0.6, 0.64, 0.62, 0.58, 0.62, 0.68, 0.58, 0.58],
  };

  function between(stops, share) {
    const place = share * (stops.length - 1);
    const n = Math.min(Math.floor(place), stops.length - 2);
    return stops[n].map((value, k) => value + (stops[n + 1][k] - value) * (place - n));
  }

  function makeTheme(dark) {
    const name = dark ? "dark" : "light";
    const ramp = new Uint8Array(256 * 3);
    for (let n = 0; n < 256; n++) ramp.set(fromOklch(...between(weightStops[name], n / 255)), 3 * n);
    const head = headHues.map((hue, n) => css(fromOklch(headLightness[name][n], 0.14, hue)));
    const plain = dark
      ? { paper: "#101216", panel: "#181b21", ink: "#eceef2", soft: "#a7adb9", rule: "#333842", hatch: "#495060", mark: "#ffffff" }
      : { paper: "#ffffff", panel: "#f6f6f3", ink: "#1b1d22", soft: "#5a5f69", rule: "#dddfe0", hatch: "#cfd2d6", mark: "#000000" };
    return { ...plain, dark, ramp, head };
  }
  const themes = { light: makeTheme(false), dark: makeTheme(true) };

  view.isDark = () => {
    const chosen = view.state ? view.state.theme : "auto";
    return chosen === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
  };
  let printing = false;
  view.withPrintColours = (task) => {
    printing = true;
    try {
      return task();
    } finally {
      printing = false;
    }
  };
  view.theme = () => (printing || !view.isDark() ? themes.light : themes.dark);

  view.headColour = (head) => view.theme().head[head.index % headHues.length];

  // The colour of a share 0..1 of the scale.
  view.weightColour = (share) => css(view.theme().ramp.subarray(...[0, 3].map((n) => n + 3 * Math.round(255 * view.clamp(share, 0, 1)))));

  // Blue below zero, orange above, paler near zero; share is -1..1.
  view.signedColour = (share) => {
    const size = Math.min(Math.abs(share), 1);
    const pale = view.isDark() && !printing ? [0.24, 0.01] : [0.97, 0.005];
    const full = view.isDark() && !printing ? [0.78, 0.14] : [0.55, 0.15];
    const mix = pale.map((value, n) => value + (full[n] - value) * size);
    return css(fromOklch(mix[0], mix[1], share < 0 ? 255 : 60));
  };

  // Draws bytes 0..255 as pixels of a canvas; the value `hidden` (a byte or null) is transparent.
  view.pixels = (bytes, columns, rows, hidden = null) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [columns, rows];
    const image = new ImageData(columns, rows);
    const ramp = view.theme().ramp;
    for (let n = 0; n < columns * rows; n++) {
      if (bytes[n] === hidden) continue;
      for (let k = 0; k < 3; k++) image.data[4 * n + k] = ramp[3 * bytes[n] + k];
      image.data[4 * n + 3] = 255;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  };
})();

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
