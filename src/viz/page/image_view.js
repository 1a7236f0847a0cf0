// The image view: how much a query (the class token, unless a patch is chosen) takes from each patch, drawn
// over the picture.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element, number } = view;

  const stage = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "picture with patches" });
  const box = element("div", { class: "stagebox" }, stage);
  const strip = element("div", { class: "strip", role: "group", "aria-label": "Heads" });
  const note = element("p", { class: "note" });
  const node = element("div", { class: "imageview" }, box, note, strip);
  const roving = view.roving(strip);

  const pictures = new Map();  // by address
  function pictureOf(layer) {
    const address = layer.image.pixels;
    if (!address) return null;
    if (!pictures.has(address)) {
      const made = new Image();
      made.addEventListener("load", view.redraw);
      made.src = address;
      pictures.set(address, made);
    }
    const picture = pictures.get(address);
    return picture.complete && picture.naturalWidth > 0 ? picture : null;
  }

  const shownQuery = () => view.point().query ?? 0;
  const rolling = (layer) => view.state.picture === "rollout" && layer.rollout !== null;

  // The weight of each patch, before it is scaled.
  function patchWeights(layer, head, query) {
    const { rows, columns, first } = layer.image;
    const rollout = head === null ? layer.rollout : null;
    return Array.from({ length: rows * columns }, (_, n) => (rollout ? rollout[n + first] : (head.weight(query, n + first) ?? 0)));
  }

  function heat(weights, columns, rows) {
    const most = Math.max(...weights);
    return view.pixels(weights.map((weight) => (most > 0 ? Math.round((255 * weight) / most) : 0)), columns, rows);
  }

  function frameFor(layer, width, height) {
    const { rows, columns } = layer.image;
    const size = Math.max(1, Math.min((width - 2) / columns, (height - 2) / rows, 96));
    return { size, left: Math.max(1, (width - size * columns) / 2), top: 1, width: size * columns, height: size * rows };
  }

  function paint(surface, frame) {
    const layer = view.layer();
    const { rows, columns, first } = layer.image;
    const theme = view.theme();
    const place = [frame.left, frame.top, frame.width, frame.height];
    const picture = pictureOf(layer);
    surface.rect(...place, theme.panel);
    if (picture) {
      const { naturalWidth: w, naturalHeight: h } = picture;
      surface.image(picture, [0, 0, w, h], place, { smooth: w > 64 });
    }
    const head = rolling(layer) ? null : view.head();
    if (head && !head.ready) return;
    const colours = heat(patchWeights(layer, head, shownQuery()), columns, rows);
    surface.image(colours, [0, 0, columns, rows], place, { alpha: picture ? view.state.blend : 1 });
    surface.frame(...place, theme.rule);
    const mark = (token, thickness) => {
      if (token === null || token < first) return;
      const [x, y] = [(token - first) % columns, Math.floor((token - first) / columns)];
      surface.frame(frame.left + x * frame.size, frame.top + y * frame.size, frame.size, frame.size, theme.mark, thickness + 2);
      surface.frame(frame.left + x * frame.size, frame.top + y * frame.size, frame.size, frame.size, theme.paper, thickness);
    };
    mark(view.state.query, 2);
    mark(view.point().key, 1);
  }

  function explain(layer) {
    const { first } = layer.image;
    const extreme = view.isDark() ? "brightest" : "darkest";
    if (rolling(layer)) {
      const most = Math.max(...patchWeights(layer, null, 0));
      return `Rollout of the class token up to this layer; ${extreme} where it is ${number(most)}.`;
    }
    const head = view.head();
    if (!head.ready) return "";
    const query = shownQuery();
    const weights = patchWeights(layer, head, query);
    const name = query < first ? (first === 1 ? "The class token" : `Token ${query}`) : `Patch ${layer.queryTokens.at(query)}`;
    const patches = weights.reduce((sum, each) => sum + each, 0);
    const most = `at most ${number(Math.max(...weights))} to one (${extreme})`;
    return `${name} gives ${number(patches)} of its weight to the patches, ${most}. Click a patch to make it the query.`;
  }

  let stripState = "";
  function refreshStrip(layer) {
    const { rows, columns } = layer.image;
    const name = [layer.index, shownQuery(), view.isDark(), ...layer.heads.map((head) => head.ready)].join();
    if (name !== stripState) {
      stripState = name;
      const entry = (head, n) => {
        const canvas = element("canvas", { width: columns, height: rows, "aria-hidden": "true" });
        if (head.ready) canvas.getContext("2d").drawImage(heat(patchWeights(layer, head, shownQuery()), columns, rows), 0, 0);
        const choose = () => view.set({ head: n, heads: [n], picture: "head" });
        return element("button", { type: "button", "data-head": n, "aria-label": head.name, onclick: choose },
          canvas, element("span", {}, String(head.number)));
      };
      const kept = document.activeElement && strip.contains(document.activeElement) ? document.activeElement.dataset.head : null;
      strip.replaceChildren(...layer.heads.map(entry));
      if (kept !== null && strip.children[kept]) strip.children[kept].focus();
      roving.settle(strip.children[view.state.head]);
    }
    Array.from(strip.children).forEach((each, n) => each.setAttribute("aria-pressed", !rolling(layer) && n === view.state.head));
  }

  let frame = null;
  view.views.push({
    id: "image", title: "Image", node, stage, aside: true, controls: ["layer", "picture", "blend"],
    offered: () => view.data.layers.some((layer) => layer.image),
    shows: (layer) => layer.image !== null,
    needs: () => view.layer().heads,
    rollout: () => (rolling(view.layer()) ? view.layer().rollout : null),
    refresh() {
      const layer = view.layer();
      note.textContent = explain(layer);  // first, because it reduces the height left for the picture
      refreshStrip(layer);
      frame = frameFor(layer, box.clientWidth, box.clientHeight);
      paint(new view.CanvasSurface(stage, box.clientWidth, frame.height + 2), frame);
      stage.setAttribute("aria-label", `${this.caption()}. Arrow keys choose a patch, Escape the class token.`);
    },
    extent: () => ({ width: Math.max(frame.width, 300) + 2, height: frame.height + 28 }),
    drawOn(surface) {
      paint(surface, { ...frame, left: 1 });
      surface.text(1, frame.height + 16, this.caption(), { size: 11, fill: view.theme().soft, room: surface.width - 2 });
    },
    caption: () => `${rolling(view.layer()) ? "Rollout" : `Attention of ${view.head().name}`} of ${view.layer().name} over the patches`,
    fileDetail: () => `${view.layer().path}-${rolling(view.layer()) ? "rollout" : view.head().number}`,
  });

  function patchAt(event) {
    const { rows, columns, first } = view.layer().image;
    const corner = stage.getBoundingClientRect();
    const x = Math.floor((event.clientX - corner.left - frame.left) / frame.size);
    const y = Math.floor((event.clientY - corner.top - frame.top) / frame.size);
    return x < 0 || y < 0 || x >= columns || y >= rows ? null : first + y * columns + x;
  }
  stage.addEventListener("pointermove", (event) => {
    const patch = patchAt(event);
    view.setHover(patch === null ? null : (view.state.query ?? 0), patch);
  });
  stage.addEventListener("pointerleave", () => view.setHover(null, null));
  stage.addEventListener("click", (event) => {
    const patch = patchAt(event);
    view.hover = null;
    view.set({ query: patch === null || patch === view.state.query ? null : patch, key: null });
  });
  stage.addEventListener("keydown", (event) => {
    const { rows, columns, first } = view.layer().image;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const from = view.state.query;
    const to = from === null || from < first ? first : view.clamp(from + step, first, first + rows * columns - 1);
    view.hover = null;
    view.set({ query: to, key: null });
    view.tell(`patch ${view.layer().queryTokens.at(to)}. ${explain(view.layer())}`);
  });
})();
