// Keys that work everywhere on the page.
(() => {
  "use strict";
  const view = window.attentiveView;

  const themes = ["auto", "light", "dark"];
  const toTab = (n) => {
    const tab = view.offeredViews()[n];
    if (tab) view.set({ tab: tab.id });
  };
  function stepHead(step) {
    const usable = view.shownView().headNumbers ? view.shownView().headNumbers() : null;
    const heads = view.layer().heads.filter((head) => !usable || usable.includes(head.number));
    const next = heads[heads.indexOf(view.head()) + step];
    if (next) view.set({ head: next.index, heads: [next.index] });
  }

  const single = {
    "[": () => view.toLayer(view.state.layer - 1), "]": () => view.toLayer(view.state.layer + 1),
    ",": () => stepHead(-1), ".": () => stepHead(1),
    e: () => view.exportSvg(), "?": () => view.showHelp(),
    t: () => view.set({ theme: themes[(themes.indexOf(view.state.theme) + 1) % themes.length] }),
  };
  for (let n = 1; n <= 6; n++) single[n] = () => toTab(n - 1);

  view.watchKeys = () =>
    document.addEventListener("keydown", (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest("input, select, textarea, dialog")) return;
      if (event.key === "Escape") {
        view.hover = null;
        return view.set({ query: null, key: null });
      }
      if (view.state.keys && single[event.key]) {
        event.preventDefault();
        single[event.key]();
      }
    });
})();
