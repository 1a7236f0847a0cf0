// The head view: queries on the left, keys on the right, and a line for each weight.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element } = view;
  const wide = 900;  // maximum width in pixels; the rest of a wider stage stays white

  const stage = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "attention lines" });
  const filler = element("div", { class: "filler" }, stage);
  const scroller = element("div", { class: "scroller" }, filler);
  const note = element("p", { class: "note", "aria-live": "off" });
  const node = element("div", { class: "lines" }, scroller, note);
  scroller.addEventListener("scroll", () => view.redraw());

  const rowHeight = (layer) => (Math.max(layer.queries, layer.keys) > 200 ? 18 : 24);

  function labelRoom(tokens, width) {
    if (!tokens.room) {
      tokens.room = 0;
      const count = Math.min(tokens.count, 600);
      for (let n = 0; n < count; n++) tokens.room = Math.max(tokens.room, view.textWidth(tokens.at(n), 13));
    }
    return view.clamp(tokens.room + 14, 60, 0.34 * width);
  }

  // The layout of a picture of this width: the left label column ends at `left`, and the right one begins at
  // `right`.
  function frameFor(layer, width) {
    const row = rowHeight(layer);
    const left = labelRoom(layer.queryTokens, width);
    const right = width - labelRoom(layer.keyTokens, width);
    return { row, left, right, width, head: 30, height: 30 + row * Math.max(layer.queries, layer.keys) + 8 };
  }

  // The token whose lines alone are drawn, if any: { query } or { key }.
  function alone() {
    const { query, key } = view.point();
    if (query !== null) return { query };
    if (view.state.query !== null) return { query: view.state.query };
    return key === null ? null : { key };
  }

  function linesFor(heads, side) {
    const min = view.leastWeight();
    if (!side) return view.strongLines(heads, min, view.linesOfEach());
    return heads.map((head) =>
      side.query !== undefined ? view.linesOfQuery(head, side.query, min) : view.linesOfKey(head, side.key, min));
  }

  // The head whose button is under the pointer; only its lines are drawn.
  let only = null;
  view.showAlone = (head) => {
    only = head;
    view.redraw();
  };

  function drawTints(surface, frame, heads, lines, side, top) {
    const toKeys = side.query !== undefined;
    const [x, room] = toKeys ? [frame.right, frame.width - frame.right] : [0, frame.left];
    const part = room / heads.length;
    heads.forEach((head, n) => {
      const { flat } = lines[n];
      for (let k = 0; k < flat.length; k += 3) {
        const y = frame.head + flat[k + (toKeys ? 1 : 0)] * frame.row - top;
        surface.rect(x + n * part, y + 1, part, frame.row - 2, view.headColour(head), 0.06 + 0.5 * flat[k + 2]);
      }
    });
  }

  function drawLabels(surface, frame, layer, top) {
    const theme = view.theme();
    const { query, key } = view.point();
    const first = Math.max(0, Math.floor((top - frame.head) / frame.row));
    const last = Math.ceil((top + surface.height - frame.head) / frame.row);
    const column = (tokens, chosen, place) => {
      for (let n = first; n < Math.min(last, tokens.count); n++) {
        const y = frame.head + (n + 0.5) * frame.row - top;
        surface.text(place.x, y, tokens.at(n), { fill: theme.ink, align: place.align, bold: n === chosen, room: place.room });
      }
    };
    column(layer.queryTokens, query ?? view.state.query, { x: frame.left - 7, align: "right", room: frame.left - 8 });
    column(layer.keyTokens, key ?? view.state.key, { x: frame.right + 7, align: "left", room: frame.width - frame.right - 8 });
  }

  function drawHeader(surface, frame) {
    const theme = view.theme();
    surface.rect(0, 0, frame.width, frame.head - 2, theme.paper);
    surface.text(frame.left - 7, 12, "Queries", { size: 12, fill: theme.soft, align: "right" });
    surface.text(frame.right + 7, 12, "Keys", { size: 12, fill: theme.soft });
  }

  // The lines of different heads are slightly offset, so that equal lines are visible.
  const shiftOf = (n, count) => (count > 1 ? (n / (count - 1) - 0.5) * Math.min(12, 3 * (count - 1)) : 0);

  // Positions of the lines to draw, as [x1, y1, x2, y2, strength, …]: those whose query is between top and
  // bottom or, for one token, those with an end there. Lines from elsewhere would cover them.
  function placed(flat, frame, side, top, bottom, shift) {
    const out = [];
    for (let n = 0; n < flat.length; n += 3) {
      const y1 = frame.head + (flat[n] + 0.5) * frame.row - top + shift;
      const y2 = frame.head + (flat[n + 1] + 0.5) * frame.row - top + shift;
      const seen = [y1, y2].map((y) => y >= 0 && y <= bottom);
      if (!seen[0] && !(side && seen[1])) continue;
      out.push(frame.left, y1, frame.right, y2, Math.min(flat[n + 2], 1));
    }
    return out;
  }

  function paint(surface, frame, top) {
    const layer = view.layer();
    const heads = view.chosenHeads().filter((head) => head.ready);
    const side = alone();
    const lines = linesFor(heads, side);
    if (side) drawTints(surface, frame, heads, lines, side, top);
    heads.forEach((head, n) => {
      if (only && only !== head && heads.includes(only)) return;
      const shift = shiftOf(n, heads.length);
      surface.curves(placed(lines[n].flat, frame, side, top, surface.height, shift), view.headColour(head));
    });
    drawLabels(surface, frame, layer, top);
    drawHeader(surface, frame);
    return lines;
  }

  function explain(lines) {
    const left = lines.reduce((sum, each) => sum + each.left, 0);
    const drawn = lines.reduce((sum, each) => sum + each.flat.length / 3, 0);
    const rest = left ? `, the strongest of each query; ${view.count(left)} weaker ones are left out` : "";
    const several = lines.length > 1 ? " Point at a head’s number for its lines alone." : "";
    note.textContent = `${view.counted(drawn, "line")}${rest}. Point at a token for all of its lines, click to keep them.${several}`;
  }

  const stageWidth = () => Math.min(scroller.clientWidth, wide);

  // Very tall views are not exported completely, because the drawing would become too large; only the visible
  // part is.
  function exported() {
    const layer = view.layer();
    const frame = frameFor(layer, Math.max(stageWidth(), 320));
    if (frame.height <= 20000) return { frame, top: 0, height: frame.height };
    return { frame, top: scroller.scrollTop, height: Math.min(scroller.clientHeight, frame.height) };
  }

  view.views = view.views || [];
  view.views.push({
    id: "heads", title: "Lines", node, stage, many: true, aside: true, controls: ["layer", "heads", "per", "min"],
    offered: () => true,
    needs: () => view.chosenHeads(),
    refresh() {
      const frame = frameFor(view.layer(), stageWidth());
      filler.style.height = `${frame.height}px`;
      filler.style.width = `${frame.width}px`;
      const height = Math.min(scroller.clientHeight, frame.height);
      explain(paint(new view.CanvasSurface(stage, frame.width, height), frame, scroller.scrollTop));
      const keys = "Up and Down choose a token, Left and Right the side; the tables list its top keys.";
      stage.setAttribute("aria-label", `${this.caption()}. ${keys}`);
    },
    extent() {
      const { frame, height } = exported();
      return { width: frame.width, height };
    },
    drawOn(surface) {
      const { frame, top } = exported();
      paint(surface, frame, top);
    },
    caption: () => `Attention lines of ${view.layer().name}, ${view.chosenHeads().map((head) => head.name).join(", ")}`,
    fileDetail: () => view.layer().path,
  });

  // The token at a point of the canvas: { query } or { key }, or null between the columns.
  view.tokenAt = (x, y) => {
    const layer = view.layer();
    const frame = frameFor(layer, stageWidth());
    const row = Math.floor((y + scroller.scrollTop - frame.head) / frame.row);
    if (row < 0 || y < frame.head) return null;
    if (x <= frame.left) return row < layer.queries ? { query: row } : null;
    if (x >= frame.right) return row < layer.keys ? { key: row } : null;
    return null;
  };

  view.revealToken = (position) => {
    const { row, head } = frameFor(view.layer(), stageWidth());
    const top = head + position * row;
    if (top - head < scroller.scrollTop) scroller.scrollTop = top - head;
    else if (top + row > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + row - scroller.clientHeight;
  };
})();

// Pointer and keyboard input of the head view.
(() => {
  "use strict";
  const view = window.attentiveView;
  const stage = view.views.find((each) => each.id === "heads").stage;
  let side = "query";  // the column in which Up and Down move

  function pointed(event) {
    const box = stage.getBoundingClientRect();
    return view.tokenAt(event.clientX - box.left, event.clientY - box.top);
  }

  stage.addEventListener("pointermove", (event) => {
    const token = pointed(event);
    stage.style.cursor = token ? "pointer" : "default";
    if (!token) view.setHover(null, null);
    else view.setHover(token.query ?? view.state.query, token.key ?? null);
  });
  stage.addEventListener("pointerleave", () => view.setHover(null, null));

  stage.addEventListener("click", (event) => {
    const token = pointed(event);
    view.hover = null;
    if (!token) return view.set({ query: null, key: null });
    const [name, position] = Object.entries(token)[0];
    view.set({ [name]: view.state[name] === position ? null : position });
  });

  function tell() {
    const { query, key } = view.state;
    const layer = view.layer();
    if (query !== null && key !== null) return view.tell(view.spokenCell(view.head(), query, key));
    view.tell(query !== null ? layer.queryTokens.named(query) : layer.keyTokens.named(key));
  }

  function move(step) {
    const count = side === "query" ? view.layer().queries : view.layer().keys;
    const from = view.state[side] ?? (step > 0 ? -1 : count);
    const to = view.clamp(from + step, 0, count - 1);
    view.hover = null;
    view.set({ [side]: to });
    view.revealToken(to);
    tell();
  }

  stage.addEventListener("keydown", (event) => {
    const big = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowDown: () => move(big), ArrowUp: () => move(-big), PageDown: () => move(20), PageUp: () => move(-20),
      Home: () => move(-1e9), End: () => move(1e9),
      ArrowLeft: () => ((side = "query"), view.tell("queries")), ArrowRight: () => ((side = "key"), view.tell("keys")),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  });
})();
