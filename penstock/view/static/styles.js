// The server's policy forbids style attributes, and plotly.js writes some: they become what scripts may set.
"use strict";
(function () {
  const plain = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style" && this.style) { this.style.cssText = value; } else { plain.call(this, name, value); }
  };
})();
