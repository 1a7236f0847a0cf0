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
