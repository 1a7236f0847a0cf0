// Creates elements, formats numbers, and announces changes to screen readers. The page's scripts share the
// object `attentiveView` of the window: they are no modules, because a page opened from disk cannot import any.
(() => {
  "use strict";
  const view = (window.attentiveView = window.attentiveView || {});

  function setAttribute(node, name, value) {
    if (value === null || value === undefined || value === false) return;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }

  // element("button", { type: "button", onclick: f }, "text", child): children that are null are skipped.
  view.element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) setAttribute(node, key, value);
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  };

  // A token inside other text, isolated so that its writing direction does not affect its neighbours.
  view.isolated = (text) => view.element("bdi", {}, text);

  // A dotted name that may break only after its dots.
  view.breakable = (name) => name.split(/(?<=\.)/).flatMap((part, n) => (n ? [view.element("wbr"), part] : [part]));

  // Four significant digits by default, without trailing zeros.
  view.number = (value, digits = 4) => {
    if (value === null || value === undefined) return "–";
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "not a number" : value > 0 ? "∞" : "−∞";
    const size = Math.abs(value);
    const far = size !== 0 && (size < 1e-4 || size >= 1e6);
    const text = far ? value.toExponential(Math.min(digits - 1, 2)) : String(+value.toPrecision(digits));
    return text.replace("-", "−").replace("e−", "e-");
  };

  view.count = (value) => value.toLocaleString("en");

  // "1 key", "2 keys".
  view.counted = (value, noun) => `${view.count(value)} ${noun}${value === 1 ? "" : "s"}`;

  let teller = null;
  view.makeTeller = () => (teller = view.element("div", { class: "unseen", role: "status", "aria-live": "polite" }));
  view.tell = (text) => {
    if (teller && teller.textContent !== text) teller.textContent = text;
  };

  view.clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));

  // Calls `task` before the next frame, once, however often it is requested.
  view.onceAFrame = (task) => {
    let asked = false;
    return () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        task();
      });
    };
  };

  // Lets the browser draw and handle input between two slices of a long computation.
  view.pause = () => new Promise((resolve) => setTimeout(resolve, 0));
})();

// Decodes the formats in which numbers are embedded in the page: base 64, base 91, little-endian arrays, raw
// DEFLATE.
(() => {
  "use strict";
  const view = window.attentiveView;
  const slice = 1 << 18;  // characters decoded at a time; a multiple of 4 and of 16

  function decodePart(text, from, to, out, at) {
    const part = atob(text.slice(from, to));
    for (let n = 0; n < part.length; n++) out[at + n] = part.charCodeAt(n);
    return part.length;
  }

  function decodedSize(text) {
    const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
    return (text.length / 4) * 3 - padding;
  }

  view.bytes = (text) => {
    const out = new Uint8Array(decodedSize(text));
    let at = 0;
    for (let from = 0; from < text.length; from += slice) at += decodePart(text, from, from + slice, out, at);
    return out;
  };

  // numbers("…", "Float32") decodes with the DataView reader of that type, whatever the machine's byte order
  // is.
  view.numbers = (text, kind) => {
    const bytes = view.bytes(text);
    const arrays = { Float32: Float32Array, Int32: Int32Array, Uint16: Uint16Array, Uint32: Uint32Array };
    const out = new arrays[kind](bytes.length / arrays[kind].BYTES_PER_ELEMENT);
    const reader = new DataView(bytes.buffer);
    for (let n = 0; n < out.length; n++) out[n] = reader["get" + kind](n * out.BYTES_PER_ELEMENT, true);
    return out;
  };

  // Two characters hold 13 bits, the lower digit in base 91 first, beginning with the lowest bit, so 16
  // characters are 13 bytes. A single character at the end holds 6 bits.
  const digitOf = (code) => code - (code < 60 ? 33 : 34);
  view.bytes91 = (text) => {
    const pairs = text.length >> 1;
    const out = new Uint8Array((pairs * 13 + (text.length % 2) * 6) >> 3);
    let [at, bits, count] = [0, 0, 0];
    for (let n = 0; n < text.length; n += 2) {
      const whole = n + 1 < text.length;
      bits |= (digitOf(text.charCodeAt(n)) + (whole ? 91 * digitOf(text.charCodeAt(n + 1)) : 0)) << count;
      count += whole ? 13 : 6;
      for (; count >= 8; count -= 8, bits >>>= 8) out[at++] = bits;
    }
    return out;
  };

  // Floats stored as byte planes: first the highest byte of all floats, then the next ones.
  view.floatsOfPlanes = (bytes) => {
    const count = bytes.length / 4;
    const words = new Uint32Array(count);
    for (let n = 0; n < bytes.length; n++) words[n % count] = (words[n % count] << 8) | bytes[n];
    return new Float32Array(words.buffer);
  };

  // Variable-length integers: seven bits a byte, lowest first; the top bit is set if more bytes follow.
  view.varints = (bytes) => {
    const out = [];
    let [value, factor] = [0, 1];
    for (const byte of bytes) {
      value += (byte & 127) * factor;
      factor *= 128;
      if (byte > 127) continue;
      out.push(value);
      [value, factor] = [0, 1];
    }
    return out;
  };

  async function feed(text, decode, writer) {
    for (let from = 0; from < text.length; from += slice) await writer.write(decode(text.slice(from, from + slice)));
    await writer.close();
  }

  // Inflates the raw DEFLATE bytes that `decode` reads from a text.
  view.inflate = async (text, decode) => {
    const stream = new DecompressionStream("deflate-raw");
    const writing = feed(text, decode, stream.writable.getWriter());
    writing.catch(() => {});  // the reader below reports the same error
    const reader = stream.readable.getReader();
    const parts = [];
    let total = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      total += part.value.length;
    }
    const out = new Uint8Array(total);
    let at = 0;
    for (const part of parts) {
      out.set(part, at);
      at += part.length;
    }
    return out;
  };
})();

// Makes tokens visible: characters that are invisible are replaced by visible ones.
(() => {
  "use strict";
  const view = window.attentiveView;

  // Reordering marks, invisible spaces and C1 controls. They are shown by number, because they would change
  // the text around them.
  const unseen = /[\u0080-\u009f\u00a0\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
  // Not within an emoji that it joins.
  const joiner = /(?<![\p{Extended_Pictographic}\ufe0f\u{1f3fb}-\u{1f3ff}])\u200d|\u200d$/gu;
  const byNumber = (character) => "‹" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "›";

  view.visible = (token) => {
    if (token === "") return "‹empty›";
    return token
      .replace(/\n/g, "⏎")
      .replace(/\t/g, "⇥")
      .replace(/ /g, "·")
      .replace(/[\u0000-\u001f]/g, (character) => String.fromCharCode(0x2400 + character.charCodeAt(0)))
      .replace(/\u007f/g, "\u2421")
      .replace(unseen, byNumber)
      .replace(joiner, byNumber);
  };

  // A token inside running text: spaces and line breaks are kept.
  view.readable = (token) => {
    if (token === "") return view.visible(token);
    const part = (text) => (text === " " || text === "" ? text : text === "\n" ? "⏎\n" : view.visible(text));
    return token.split(/( |\n)/).map(part).join("");
  };

  // The tokens of one side of a view, or positions if there are no tokens.
  view.Tokens = class {
    constructor(list, count, noun) {
      this.list = list ? list.map(view.visible) : null;
      this.count = count;
      this.noun = noun;
    }

    at(position) {
      return this.list && position < this.list.length ? this.list[position] : String(position);
    }

    // "key 3 · cat", or only the position if there is no token.
    named(position) {
      return this.list ? `${this.noun} ${position} · ${this.at(position)}` : `${this.noun} ${position}`;
    }
  };
})();

// The keys that each query sees: one span per row, and single hidden keys inside it.
(() => {
  "use strict";
  const view = window.attentiveView;

  // Whether the span of some query in rows [first, end) contains a key in columns [from, to).
  const reaches = (mask, first, end, from, to) => {
    for (let i = first; i < end; i++) if (mask.first[i] < to && mask.end[i] > from && mask.end[i] > mask.first[i]) return true;
    return false;
  };

  view.Mask = class {
    constructor(raw, queries) {
      const spans = view.numbers(raw.spans, "Int32");
      this.first = new Int32Array(queries);
      this.end = new Int32Array(queries);
      // Where the weights of a row begin; the last entry is their number.
      this.offset = new Float64Array(queries + 1);
      for (let i = 0; i < queries; i++) {
        this.first[i] = spans[2 * i];
        this.end[i] = Math.max(spans[2 * i], spans[2 * i + 1]);
        this.offset[i + 1] = this.offset[i] + this.end[i] - this.first[i];
      }
      this.cells = this.offset[queries];
      this.rawHoles = raw.holes;
      this.holes = null;
    }

    async load() {
      if (!this.rawHoles || this.holes) return;
      const holes = await view.inflate(this.rawHoles, view.bytes);
      const size = Math.ceil(this.cells / 8);
      if (holes.length !== size) throw new Error(`expected ${size} bytes of hidden keys, found ${holes.length}`);
      this.holes = holes;
    }

    // The index of a cell's weight, or -1 if the cell is hidden. Bit n of the holes is bit n % 8, counted
    // from the lowest, of byte n / 8.
    place(i, j) {
      if (j < this.first[i] || j >= this.end[i]) return -1;
      const n = this.offset[i] + j - this.first[i];
      return this.holes && (this.holes[Math.floor(n / 8)] >> (n % 8)) & 1 ? -1 : n;
    }

    // For each cell of a map divided into rows × columns parts: 1 if no query of the part sees one of its
    // keys.
    hiddenParts(keys, rows, columns) {
      if (this.parts) return this.parts;
      const cut = (n, parts, count) => Math.floor((n * count) / parts);
      const queries = this.first.length;
      const parts = Uint8Array.from({ length: rows * columns }, (_, n) => {
        const [y, x] = [Math.floor(n / columns), n % columns];
        const seen = reaches(this, cut(y, rows, queries), cut(y + 1, rows, queries), cut(x, columns, keys), cut(x + 1, columns, keys));
        return seen ? 0 : 1;
      });
      return (this.parts = parts);
    }

    // The number of keys that a query sees.
    seen(i) {
      let count = this.end[i] - this.first[i];
      if (this.holes) for (let j = this.first[i]; j < this.end[i]; j++) if (this.place(i, j) < 0) count--;
      return count;
    }
  };
})();

// One head: its weights, which are decoded when first needed, and the properties of its cells.
(() => {
  "use strict";
  const view = window.attentiveView;
  const most = 256 * 2 ** 20;  // maximum bytes of decoded weights that are kept
  const kept = new Set();  // heads with decoded weights, the most recently read one at the end

  function keep(head) {
    kept.add(head);
    let total = 0;
    for (const each of kept) total += each.weights.length;
    for (const each of kept) {
      if (total <= most || each === head) break;
      total -= each.weights.length;
      each.weights = null;
      kept.delete(each);
    }
  }

  view.Head = class {
    constructor(raw, layer, index, mask) {
      Object.assign(this, { raw, layer, index, mask, number: raw.head, weights: null, rowMax: null, logsumexp: null });
    }

    get name() {
      return `head ${this.number}`;
    }
    // Null until the weights are read.
    get largest() {
      return (this._largest ??= this.rowMax ? this.rowMax.reduce((most, each) => (each > most ? each : most), 0) : null);
    }
    get ready() {
      return this.weights !== null;
    }

    // The small map as a picture; cells that no span reaches are transparent.
    thumb() {
      const { thumb, thumb_size: rows, thumb_columns: columns } = this.raw;
      this._thumbs ||= new Map();  // by theme
      if (!this._thumbs.has(view.theme())) {
        const parts = this.mask.hiddenParts(this.layer.keys, rows, columns);
        const reached = view.bytes(thumb);
        let next = 0;
        const values = parts.map((hidden) => (hidden ? 0 : Math.max(reached[next++], 1)));
        this._thumbs.set(view.theme(), view.pixels(values, columns, rows, 0));
      }
      return this._thumbs.get(view.theme());
    }

    // Reads the weights once, however often it is called; `problem` holds the reason for a failure.
    load() {
      this.loading ||= this.decode().catch((error) => (this.problem = error.message)).finally(() => (this.loading = null));
      return this.loading;
    }

    async decode() {
      await this.mask.load();
      const text = document.getElementById(`w-${this.layer.index}-${this.number}`).textContent;
      this.take(await view.inflate(text, view.bytes91));
      keep(this);
    }

    // Unpacks the quantised weights, the largest weight of each row, logsumexp if present, and the places of
    // the largest weights.
    take(bytes) {
      const { cells } = this.mask;
      const floats = 4 * this.layer.queries;
      const rest = cells + floats * (this.raw.logsumexp ? 2 : 1);
      if (bytes.length < rest) throw new Error(`expected at least ${rest} bytes of weights, found ${bytes.length}`);
      const places = view.varints(bytes.subarray(rest));
      const starts = [0];  // where the places of each row begin
      for (let i = 0; i < this.layer.queries; i++) starts.push(starts[i] + Math.min(this.raw.top_count, this.mask.seen(i)));
      if (places.length !== starts.at(-1)) throw new Error(`expected ${starts.at(-1)} places, found ${places.length}`);
      this.rowMax = view.floatsOfPlanes(bytes.subarray(cells, cells + floats));
      this.logsumexp = this.raw.logsumexp ? view.floatsOfPlanes(bytes.subarray(cells + floats, rest)) : null;
      Object.assign(this, { places, starts, listed: null, weights: bytes.slice(0, cells) });
    }

    // The weight of a cell in steps, or -1 if the key is hidden.
    steps(i, j) {
      const place = this.mask.place(i, j);
      return place < 0 ? -1 : this.weights[place];
    }
    step(i) {
      return this.rowMax[i] / view.data.levels;
    }
    weight(i, j) {
      const steps = this.steps(i, j);
      return steps < 0 ? null : steps * this.step(i);
    }

    // Log weight + logsumexp. If the weight is below half a step, the score of half a step is returned as an
    // upper bound.
    score(i, j) {
      const steps = this.steps(i, j);
      if (steps < 0 || !this.logsumexp) return null;
      const below = steps === 0;
      return { below, value: Math.log((below ? 0.5 : steps) * this.step(i)) + this.logsumexp[i] };
    }

    // The keys with the largest weights, in exact order: for keys with equal steps, the places say which
    // comes next.
    topKeys(i) {
      if (!this.ready) return [];
      if (this.listed && this.listed.query === i) return this.listed.keys;
      const span = 2 ** 31;
      const sorted = [];
      for (let j = this.mask.first[i]; j < this.mask.end[i]; j++) {
        const steps = this.steps(i, j);
        if (steps >= 0) sorted.push((255 - steps) * span + j);
      }
      const rest = Array.from(Float64Array.from(sorted).sort());
      const keys = this.places.slice(this.starts[i], this.starts[i + 1]).map((place) => rest.splice(place, 1)[0] % span);
      this.listed = { query: i, keys };
      return keys;
    }

    // Returns { rank, exact, visible }. The rank is exact for the topKeys; otherwise it comes from quantised
    // weights, many of which are equal.
    rank(i, j) {
      const steps = this.steps(i, j);
      if (steps < 0) return null;
      const visible = this.mask.seen(i);
      const top = this.topKeys(i);
      if (top.includes(j)) return { rank: top.indexOf(j) + 1, exact: true, visible };
      let larger = 0;
      let equal = 0;
      for (let k = this.mask.first[i]; k < this.mask.end[i]; k++) {
        const other = this.steps(i, k);
        if (other > steps) larger++;
        else if (other === steps) equal++;
      }
      return { rank: Math.max(larger + Math.ceil((equal + 1) / 2), top.length + 1), exact: false, visible };
    }
  };
})();

// Reads the data embedded in the page into layers with heads.
(() => {
  "use strict";
  const view = window.attentiveView;

  // Patches are named by row and column, from 0, because they have no words.
  function patchNames({ rows, columns, first }) {
    const before = Array.from({ length: first }, (_, n) => (first === 1 ? "class" : `token ${n}`));
    return before.concat(Array.from({ length: rows * columns }, (_, n) => `${Math.floor(n / columns)},${n % columns}`));
  }

  // A picture that several layers show is stored in the first of them; the others refer to it by number.
  const pixelsOf = ({ pixels }, views) => (typeof pixels === "number" ? views[pixels].image.pixels : pixels);

  class Layer {
    constructor(raw, index, data) {
      Object.assign(this, { raw, index, path: raw.path, queries: raw.queries, keys: raw.keys, origin: raw.key_origin });
      this.linear = raw.linear;
      this.image = raw.image && { ...raw.image, pixels: pixelsOf(raw.image, data.views) };
      const patches = raw.image ? patchNames(raw.image) : undefined;
      this.queryTokens = new view.Tokens(data.tokens[raw.query_tokens] || patches, raw.queries, "query");
      this.keyTokens = new view.Tokens(data.tokens[raw.key_tokens] || patches, raw.keys, "key");
      this.heads = raw.heads.map((head, n) => new view.Head(head, this, n, data.mask(head.hidden, raw.queries)));
      this.neurons = raw.neurons || [];
    }

    get name() {
      return this.raw.batch > 0 ? `${this.path} (batch item ${this.raw.batch})` : this.path;
    }
    get rollout() {
      return (this._rollout ||= this.raw.rollout ? view.numbers(this.raw.rollout, "Float32") : null);
    }
  }

  // Heads share masks; a mask is decoded when the first head needs it.
  function sharedMasks(hidden) {
    const masks = [];
    return (index, queries) => (masks[index] ||= new view.Mask(hidden[index], queries));
  }

  view.readData = () => {
    const raw = JSON.parse(document.getElementById("attentive-data").textContent);
    if (raw.version !== 2) throw new Error(`this page holds data of version ${raw.version}; its scripts read version 2`);
    const data = { title: raw.title || "Attention", note: raw.note || "", levels: raw.levels, tokens: raw.tokens, views: raw.views };
    data.mask = sharedMasks(raw.hidden);
    data.layers = raw.views.map((each, n) => new Layer(each, n, data));
    data.heads = data.layers.flatMap((layer) => layer.heads);
    return (view.data = data);
  };
})();
