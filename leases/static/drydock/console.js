// The console's own part of the browser: renewing, ages, copying, search. No framework, nothing inline.
"use strict";
(function () {
  // The server's clock, for browsers whose own is wrong.
  const said = document.querySelector('meta[name="dd-now"]');
  const offset = said ? Date.parse(said.content) - Date.now() : 0;

  // Renewing. A hidden page asks nothing; nothing is taken from under somebody's hands.
  function busy(region) {
    const marked = window.getSelection();
    const inside = marked && !marked.isCollapsed && region.contains(marked.anchorNode);
    const typing = region.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    return inside || typing || region.querySelector("input.action-select:checked") !== null;
  }

  function isLive(element) {
    return element instanceof Element && element.matches(".dd-live");
  }

  document.addEventListener("htmx:beforeRequest", function (event) {
    if (isLive(event.target) && (document.hidden || busy(event.target))) {
      event.preventDefault();
    }
  });

  document.addEventListener("htmx:beforeSwap", function (event) {
    const region = event.detail.target;
    const ours = event.detail.xhr.getResponseHeader("X-Drydock-Live");
    if (event.detail.xhr.status === 200 && !ours) {
      // A page that asks to sign in, not what was asked for.
      event.detail.shouldSwap = false;
      window.location.reload();
    } else if (isLive(region)) {
      event.detail.shouldSwap = event.detail.shouldSwap && !busy(region);
      keepOpen(region);
    }
  });

  document.addEventListener("htmx:afterSwap", function (event) {
    const region = document.getElementById(event.detail.target.id) || event.detail.target;
    reopen(region);
    furnish(region);
    if (region.querySelector("#result_list input.action-select") && window.Actions) {
      window.Actions(region.querySelectorAll("tr input.action-select"));
    }
  });

  document.addEventListener("htmx:afterRequest", function (event) {
    if (isLive(event.target)) {
      const status = event.detail.xhr.status;
      document.documentElement.dataset.ddLive = status > 0 && status < 500 ? "yes" : "no";
    }
  });

  // What was unfolded stays unfolded.
  let unfolded = [];

  function keepOpen(region) {
    unfolded = Array.from(region.querySelectorAll("details[open] > summary"), (one) => one.textContent);
  }

  function reopen(region) {
    region.querySelectorAll("details > summary").forEach(function (one) {
      if (unfolded.includes(one.textContent)) {
        one.parentElement.open = true;
      }
    });
    unfolded = [];
  }

  // Ages and countdowns, in the same words as the server's.
  function words(seconds) {
    const away = Math.floor(Math.abs(seconds));
    const minutes = Math.floor((away % 3600) / 60);
    let text = away + " s";
    if (away < 1) {
      return "now";
    } else if (away >= 86400) {
      text = Math.round(away / 86400) + " d";
    } else if (away >= 3600) {
      text = Math.floor(away / 3600) + " h" + (minutes ? " " + minutes + " min" : "");
    } else if (away >= 60) {
      text = minutes + " min";
    }
    return seconds < 0 ? "in " + text : text + " ago";
  }

  function tick() {
    const now = Date.now() + offset;
    document.querySelectorAll("time[datetime]").forEach(function (one) {
      const text = words((now - Date.parse(one.dateTime)) / 1000);
      if (one.textContent !== text) {
        one.textContent = text;
      }
    });
  }

  // Copying.
  function copyButton(line) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy: " + line.textContent);
    button.addEventListener("click", async function () {
      try {
        await navigator.clipboard.writeText(line.textContent);
        button.textContent = "Copied";
      } catch {
        window.getSelection().selectAllChildren(line);
        button.textContent = "Press Ctrl-C";
      }
      setTimeout(function () {
        button.textContent = "Copy";
      }, 2000);
    });
    return button;
  }

  function furnish(root) {
    root.querySelectorAll(".dd-copy > code:only-child").forEach(function (line) {
      line.after(copyButton(line));
    });
    tick();
  }

  // Search.
  document.addEventListener("keydown", function (event) {
    const field = document.getElementById("dd-search-words");
    const writing = event.target.matches("input, select, textarea, [contenteditable]");
    if (field && event.key === "/" && !writing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (field && event.key === "Escape" && event.target === field) {
      field.blur();
    }
  });

  furnish(document);
  setInterval(function () {
    if (!document.hidden) {
      tick();
    }
  }, 1000);
})();
