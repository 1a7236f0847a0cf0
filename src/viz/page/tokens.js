// Makes tokens visible: characters that are invisible are replaced by visible ones.
(() => {
  "use strict";
  const view = window.attentiveView;

  // Reordering marks, invisible spaces and C1 controls. They are shown by number, because they would change
  // the text around them.
  const unseen = /[\u0080-\u009f\u00a0\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
  // Not within an emoji that it joins.
  const joiner = /(?<![\p{Extended_Pictographic}\ufe0f\u{1f3fb}-\u{1f3ff}])\u200d|\u200d$/gu;
  const byNumber = (character) => "‹" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "›";

  view.visible = (token) => {
    if (token === "") return "‹empty›";
    return token
      .replace(/\n/g, "⏎")
      .replace(/\t/g, "⇥")
      .replace(/ /g, "·")
      .replace(/[\u0000-\u001f]/g, (character) => String.fromCharCode(0x2400 + character.charCodeAt(0)))
      .replace(/\u007f/g, "\u2421")
      .replace(unseen, byNumber)
      .replace(joiner, byNumber);
  };

  // A token inside running text: spaces and line breaks are kept.
  view.readable = (token) => {
    if (token === "") return view.visible(token);
    const part = (text) => (text === " " || text === "" ? text : text === "\n" ? "⏎\n" : view.visible(text));
    return token.split(/( |\n)/).map(part).join("");
  };

  // The tokens of one side of a view, or positions if there are no tokens.
  view.Tokens = class {
    constructor(list, count, noun) {
      this.list = list ? list.map(view.visible) : null;
      this.count = count;
      this.noun = noun;
    }

    at(position) {
      return this.list && position < this.list.length ? this.list[position] : String(position);
    }

    // "key 3 · cat", or only the position if there is no token.
    named(position) {
      return this.list ? `${this.noun} ${position} · ${this.at(position)}` : `${this.noun} ${position}`;
    }
  };
})();
