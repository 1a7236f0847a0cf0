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
