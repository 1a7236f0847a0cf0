// Pointer, wheel, touch and keyboard input of the map.
(() => {
  "use strict";
  const view = window.attentiveView;
  const stage = view.views.find((each) => each.id === "map").stage;
  const frame = () => view.mapFrameShown();
  const pointers = new Map();  // pointers that are down, by id
  let moved = false;  // whether any has moved since the first went down

  function inStage(event) {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function hover(event) {
    const cell = view.cellAt(frame(), ...inStage(event));
    stage.style.cursor = cell ? "crosshair" : "default";
    view.setHover(cell ? cell.query : null, cell ? cell.key : null);
  }

  function pinch(before, now) {
    const other = [...pointers.values()].find((each) => each !== before);
    const far = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
    const middle = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
    view.set({ at: view.zoomedAt(frame(), far(now, other) / far(before, other), ...middle) });
  }

  stage.addEventListener("pointerdown", (event) => {
    if (pointers.size === 0) moved = false;
    pointers.set(event.pointerId, inStage(event));
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return hover(event);
    const now = inStage(event);
    if (!moved && Math.hypot(now[0] - before[0], now[1] - before[1]) < 4) return;
    moved = true;
    view.hover = null;
    if (pointers.size > 1) pinch(before, now);
    else if (view.state.at) view.set({ at: view.movedBy(frame(), now[0] - before[0], now[1] - before[1]) });
    pointers.set(event.pointerId, now);
  });
  const release = (event) => pointers.delete(event.pointerId);
  stage.addEventListener("pointercancel", release);
  stage.addEventListener("pointerup", (event) => {
    release(event);
    if (moved) return;
    const cell = view.cellAt(frame(), ...inStage(event));
    const same = cell && cell.query === view.state.query && cell.key === view.state.key;
    view.set(cell && !same ? cell : { query: null, key: null });
  });
  stage.addEventListener("pointerleave", () => view.setHover(null, null));
  stage.addEventListener("dblclick", (event) => view.set({ at: view.zoomedAt(frame(), 2, ...inStage(event)) }));

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const factor = Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.002));
    view.set({ at: view.zoomedAt(frame(), factor, ...inStage(event)) });
  }, { passive: false });

  // Zooms around the chosen cell if it is visible, otherwise around the centre.
  view.zoomMap = (factor) => {
    const { left, top, usedX, usedY, x, y, sx, sy } = frame();
    const { query, key } = view.state;
    const cell = query === null || key === null ? null : [left + (key + 0.5 - x) * sx, top + (query + 0.5 - y) * sy];
    const seen = cell && cell[0] > left && cell[0] < left + usedX && cell[1] > top && cell[1] < top + usedY;
    view.set({ at: view.zoomedAt(frame(), factor, ...(seen ? cell : [left + usedX / 2, top + usedY / 2])) });
  };

  function move(down, right) {
    const layer = view.layer();
    const { query, key } = view.state;
    const fresh = query === null || key === null;
    const to = {
      query: fresh ? (query ?? 0) : view.clamp(query + down, 0, layer.queries - 1),
      key: fresh ? (key ?? 0) : view.clamp(key + right, 0, layer.keys - 1),
    };
    view.hover = null;
    view.set({ ...to, at: view.showingCell(frame(), to.query, to.key) });
    view.tell(view.spokenCell(view.head(), to.query, to.key));
  }

  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const big = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowDown: () => move(big, 0), ArrowUp: () => move(-big, 0), ArrowRight: () => move(0, big), ArrowLeft: () => move(0, -big),
      Home: () => move(0, -1e9), End: () => move(0, 1e9), PageUp: () => move(-1e9, 0), PageDown: () => move(1e9, 0),
      "+": () => view.zoomMap(1.5), "=": () => view.zoomMap(1.5), "-": () => view.zoomMap(1 / 1.5), 0: () => view.set({ at: null }),
      Enter: () => view.set({ tab: "heads", heads: [view.state.head] }),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  });
})();
