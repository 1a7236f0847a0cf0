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
