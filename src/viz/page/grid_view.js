// The grid: every head of every layer as a small map; a click opens the head.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element, number } = view;

  const measures = {
    entropy: { title: "entropy", value: (raw) => raw.entropy, unit: " bits" },
    distance: { title: "mean distance", value: (raw) => raw.distance, unit: "" },
    previous: { title: "weight of the previous token", value: (raw) => raw.previous, unit: "" },
    first: { title: "weight of the first token", value: (raw) => raw.first, unit: "" },
  };

  // Heads in descending order; heads without the number come last.
  function ordered() {
    const heads = [...view.data.heads];
    const measure = measures[view.state.sort];
    if (!measure) return heads;
    const size = (head) => measure.value(head.raw) ?? -Infinity;
    return heads.sort((a, b) => size(b) - size(a));
  }

  function shortText(head) {
    const measure = measures[view.state.sort];
    return measure ? number(measure.value(head.raw)) : String(head.number);
  }
  function longText(head) {
    const known = Object.values(measures).filter(({ value }) => value(head.raw) !== null);
    const parts = known.map(({ title, value, unit }) => `${title} ${number(value(head.raw))}${unit}`);
    return [`${head.layer.name}, ${head.name}`, ...parts].join(", ");
  }

  function open(head) {
    view.set({ tab: "map", layer: head.layer.index, head: head.index, heads: [head.index], at: null });
    view.focusStage();
  }

  const list = element("div", { class: "grid" });
  const note = element("p", { class: "note" });
  const text = element("div", { class: "texts" });
  const node = element("div", { class: "gridview" }, text, list, note);
  let drawn = "";

  // The token lists to show as text. The queries' own list is shown only if it is not the tail of the keys'
  // list.
  const mostShown = 5000;  // tokens shown
  function readLists() {
    const lists = new Map();
    for (const { raw } of view.data.layers) {
      const [queries, keys] = [view.data.tokens[raw.query_tokens], view.data.tokens[raw.key_tokens]];
      const tail = queries && keys && queries.every((token, n) => token === keys[keys.length - queries.length + n]);
      if (queries && !tail) lists.set(queries, "Queries");
      if (keys) lists.set(keys, lists.size ? "Keys" : "Text");
    }
    return [...lists];
  }
  function readText([tokens, name], _, lists) {
    // Numbers, or words of a vocabulary without spaces.
    const apart = !tokens.some((token) => token.includes(" "));
    const parts = tokens.slice(0, mostShown).map((token, n) => element("span", { title: `${n}` }, view.readable(token)));
    if (tokens.length > mostShown) parts.push(` … and ${view.count(tokens.length - mostShown)} more`);
    const label = lists.length > 1 ? name : "Text";
    return element("section", { class: "read", role: "region", "aria-label": `${label}, ${view.counted(tokens.length, "token")}`, tabindex: 0 },
      lists.length > 1 ? element("h2", {}, name) : null, element("p", { class: apart ? "apart" : null, dir: "auto" }, parts));
  }

  // Tiles fill the width: next to their layer's name if a row of them fits there, otherwise below it.
  const [gap, least, most] = [8, 48, 200];
  const inLine = (room, size) => Math.max(1, Math.floor((room + gap) / (size + gap)));
  function fit(width) {
    const sorted = view.state.sort !== "layer";
    const heads = sorted ? view.data.heads.length : Math.max(...view.data.layers.map((layer) => layer.heads.length));
    const names = Math.max(...view.data.layers.map((layer) => view.textWidth(layer.name, 13)));
    const name = Math.ceil(view.clamp(names + 12, 40, 150));
    const beside = !sorted && (width >= 700 || inLine(width - name - gap, least) >= heads);
    const room = beside ? width - name - gap : width;
    const lines = Math.ceil(heads / inLine(room, sorted ? 84 : least));
    const line = Math.ceil(heads / lines);
    const size = Math.min(most, Math.floor((room - gap * (line - 1)) / line));
    return { beside, name, line, size };
  }
  function layOut(width) {
    const { beside, name, line, size } = fit(width);
    list.classList.toggle("beside", beside);
    for (const [property, value] of [["--cell", `${size}px`], ["--line", line], ["--name", `${name}px`]]) list.style.setProperty(property, value);
  }

  function tile(head, sorted) {
    const canvas = head.thumb();
    canvas.setAttribute("aria-hidden", "true");
    const text = sorted ? [element("b", {}, `${head.layer.index}·${head.number}`), " ", shortText(head)] : [shortText(head)];
    return element("button", { type: "button", "aria-label": longText(head), title: longText(head), onclick: () => open(head) },
      canvas, element("span", {}, ...text));
  }

  // One row for each layer, headed by its path; or, if sorted, one sequence of tiles with their numbers
  // below.
  function rebuild() {
    const sorted = view.state.sort !== "layer";
    list.classList.toggle("sorted", sorted);
    text.replaceChildren(...readLists().map(readText));
    if (sorted) return list.replaceChildren(element("div", { class: "row" }, ordered().map((head) => tile(head, true))));
    const row = (layer) =>
      element("div", { class: "row", role: "group", "aria-label": layer.name },
        element("div", { class: "path", title: layer.name }, view.breakable(layer.name)),
        layer.heads.map((head) => tile(head, false)));
    list.replaceChildren(...view.data.layers.map(row));
  }

  // The button above or below: the nearest one in the adjacent line of tiles.
  function vertical(from, down) {
    const box = from.getBoundingClientRect();
    let best = null;
    for (const each of list.querySelectorAll("button")) {
      const other = each.getBoundingClientRect();
      const dy = down ? other.top - box.top : box.top - other.top;
      if (dy < 4) continue;
      const far = dy * 1000 + Math.abs(other.left - box.left);
      if (!best || far < best.far) best = { far, each };
    }
    return best && best.each;
  }
  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const target = vertical(document.activeElement, event.key === "ArrowDown");
    if (target) target.focus();
    event.preventDefault();
    event.stopImmediatePropagation();
  });
  const roving = view.roving(list, () => ({ ArrowLeft: -1, ArrowRight: 1 }));

  // The layout of the SVG version: tiles of 64 pixels with the same texts.
  const [cell, mostLines] = [64, 8];
  function textLines(width) {
    const lines = [];
    for (const [tokens] of readLists()) {
      const words = tokens.slice(0, mostShown).map((token) => token.replace(/\s+/g, " ")).join(tokens.some((token) => token.includes(" ")) ? "" : " ");
      let line = "";
      for (const word of words.trim().split(" ").map(view.visible)) {
        const longer = line ? `${line} ${word}` : word;
        if (line && view.textWidth(longer, 12) > width) lines.push(line);
        line = line && view.textWidth(longer, 12) > width ? word : longer;
      }
      lines.push(line);
    }
    return lines.length > mostLines ? [...lines.slice(0, mostLines - 1), `${lines[mostLines - 1]} …`] : lines;
  }
  const textHeight = (width) => {
    const lines = textLines(width - 32).length;
    return lines ? 18 * lines + 14 : 0;
  };
  function place(head, n) {
    if (view.state.sort === "layer") {
      const row = head.layer.index;
      return { x: 150 + head.index * (cell + 12), y: 16 + row * (cell + 30) };
    }
    return { x: 16 + (n % 12) * (cell + 12), y: 16 + Math.floor(n / 12) * (cell + 30) };
  }

  view.views.push({
    id: "grid", title: "Overview", node, aside: false, controls: ["sort"],
    offered: () => true,
    needs: () => [],
    refresh() {
      const name = `${view.state.sort} ${view.isDark()}`;
      if (name !== drawn) {
        rebuild();
        roving.settle();
        drawn = name;
      }
      layOut(list.clientWidth - 6);
      note.textContent = `${view.counted(view.data.heads.length, "head")} in ${view.counted(view.data.layers.length, "layer")}. ` +
        "A tile shows the largest weight in each part of the map, as a share of its query’s largest.";
    },
    extent() {
      const corners = ordered().map(place);
      const width = Math.max(360, ...corners.map(({ x }) => x + cell + 16));
      return { width, height: Math.max(...corners.map(({ y }) => y)) + cell + 30 + textHeight(width) };
    },
    drawOn(surface) {
      const theme = view.theme();
      const above = textHeight(surface.width);
      textLines(surface.width - 32).forEach((line, n) =>
        surface.text(16, 20 + 18 * n, line, { size: 12, fill: theme.ink, room: surface.width - 32 }));
      if (view.state.sort === "layer") view.data.layers.forEach((layer, row) =>
        surface.text(138, above + 16 + row * (cell + 30) + cell / 2, layer.name, { size: 12, fill: theme.soft, align: "right", room: 122 }));
      ordered().forEach((head, n) => {
        const { x, y } = { x: place(head, n).x, y: above + place(head, n).y };
        const { thumb_columns: columns, thumb_size: rows } = head.raw;
        surface.hatch(x, y, cell, cell);
        surface.image(head.thumb(), [0, 0, columns, rows], [x, y, cell, cell]);
        surface.frame(x, y, cell, cell, theme.rule);
        const text = view.state.sort === "layer" ? shortText(head) : `${head.layer.index}·${head.number}  ${shortText(head)}`;
        surface.text(x, y + cell + 11, text, { size: 11, fill: theme.soft });
      });
    },
    caption: () => "Every head of every layer",
    fileDetail: () => "",
  });
})();
