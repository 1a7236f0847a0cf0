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
