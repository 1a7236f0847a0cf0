// Starts the page.
(() => {
  "use strict";
  const view = window.attentiveView;

  const tooOld = "this browser cannot unpack the weights; Chrome 103, Firefox 113 and Safari 16.4 can";

  function start() {
    const root = document.getElementById("app");
    try {
      if (!window.DecompressionStream) throw new Error(tooOld);
      view.readData();
      document.title = view.visibleTitle();
      view.makeShell(root);
      view.readHash();
      view.watchKeys();
      view.watchPrint();
      window.addEventListener("hashchange", view.readHash);
    } catch (error) {
      root.replaceChildren(view.element("p", { class: "error", role: "alert" }, `The page cannot be shown: ${error.message}`));
      throw error;
    }
  }
  start();
})();
