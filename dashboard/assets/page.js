/* Small things that the page does without asking the server: address, theme, keys, clipboard, image export. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});
  const MOST_RUNS = 12;

  /* A task's number means nothing in another run, so a selection says of which run it is. */
  ns.select = (selection) => window.dash_clientside.set_props("selection", { data: { ...selection, query: ns.query } });

  ns.toast = (title, message, color) =>
    window.dash_clientside.set_props("toasts", {
      sendNotifications: [{ action: "show", id: `toast-${Date.now()}`, title, message, color, autoClose: 6000 }],
    });

  /* A figure's own table where it has one, else what it draws. */
  function csvOf(graph) {
    const table = graph.layout.meta?.table;
    if (table) return written([table.columns, ...table.rows]);
    const rows = [["series", "x", "y", "value", "label"]];
    for (const trace of graph.data) {
      if (trace.hoverinfo === "skip") continue;
      const name = trace.name || trace.type;
      if (trace.z) trace.z.forEach((line, i) => line.forEach((z, j) => z != null && rows.push([name, trace.x[j], trace.y[i], z, ""])));
      else (trace.x || []).forEach((x, i) => rows.push([name, x, trace.y[i], "", trace.customdata ? [].concat(trace.customdata[i]).join(" ") : ""]));
    }
    return written(rows);
  }

  const written = (rows) => rows.map((row) => row.map((cell) => `"${String(cell ?? "").replaceAll('"', '""')}"`).join(",")).join("\r\n");

  ns.download = function (name, text, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  async function exportCard(id, format) {
    if (document.querySelector(`#${id} .drawn`)) return ns.exportDrawing(id, format);
    const canvas = document.querySelector(`#${id} canvas`);
    if (canvas && format === "png" && !document.querySelector(`#${id} .js-plotly-plot`)) {
      canvas.toBlob((blob) => ns.download(`${id}.png`, blob, "image/png"));
      return;
    }
    const graph = document.querySelector(`#${id} .js-plotly-plot`);
    if (!graph) return; // nothing is drawn yet
    if (format === "csv") return ns.download(`${id}.csv`, csvOf(graph), "text/csv");
    await window.Plotly.downloadImage(graph, { format, filename: id, width: 900, height: 500, scale: format === "png" ? 2 : 1 });
  }

  /* A file of the run; where there is none, the reason stays on the page. */
  async function exportRun(link) {
    const answer = await fetch(link.href);
    if (answer.ok) return ns.download(link.dataset.file, await answer.blob(), answer.headers.get("Content-Type"));
    ns.toast(`No ${link.dataset.file}`, await answer.text(), "red");
  }

  document.addEventListener("click", (event) => {
    const file = event.target.closest("[data-file]");
    if (file) {
      event.preventDefault();
      exportRun(file);
    }
    if (event.target.matches("dialog")) event.target.close(); // outside of what it holds
    const item = event.target.closest("[data-export]");
    if (item) exportCard(item.dataset.card, item.dataset.export);
    const offer = event.target.closest("[data-set]");
    if (offer) window.dash_clientside.set_props(offer.dataset.set, { value: +offer.dataset.value });
    const open = event.target.closest("summary")?.parentElement;
    for (const menu of document.querySelectorAll("details.menu[open]")) if (menu !== open) menu.open = false;
  });

  /* Back and forward, and a click on a recent run, set the controls; what follows is as if the user had set them. */
  window.addEventListener("popstate", () => {
    if (!document.getElementById("results")) return;
    ns.addressed = null;
    window.dash_clientside.set_props("baseline", { data: new URLSearchParams(window.location.search).get("base") || null });
    window.dash_clientside.set_props("load", { data: window.location.search.slice(1) });
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
    if (event.target.closest("input, textarea, [contenteditable]") || event.ctrlKey || event.metaKey) return;
    if (event.key === "?") document.getElementById("help-button")?.click();
    if (event.key === "/") {
      event.preventDefault();
      const field = document.querySelector("#find-layer, #validate-run");
      field?.focus();
      field?.select();
    }
  });

  ns.remember = function (query, words) {
    const before = JSON.parse(sessionStorage.getItem("runs") || "[]");
    const runs = [[query, words], ...before.filter(([earlier]) => earlier !== query)].slice(0, MOST_RUNS);
    sessionStorage.setItem("runs", JSON.stringify(runs));
    const buttons = runs.map(([load, textContent]) => {
      const button = Object.assign(document.createElement("button"), { className: "menu-item", textContent });
      button.dataset.load = load;
      return button;
    });
    document.getElementById("history-runs")?.replaceChildren(...buttons);
  };

  /* A baseline for each model and machine: who comes back to one finds what was pinned there. */
  ns.rebase = function (query, baseline) {
    const key = (text) => ["profile", "cluster"].map((name) => new URLSearchParams(text).get(name)).join(" ");
    const pins = JSON.parse(sessionStorage.getItem("pins") || "{}");
    if (ns.rebased === key(query) || !ns.rebased) {
      if (baseline && key(baseline) === key(query)) pins[key(query)] = baseline;
      sessionStorage.setItem("pins", JSON.stringify(pins));
    } else if (pins[key(query)] && pins[key(query)] !== baseline) window.dash_clientside.set_props("baseline", { data: pins[key(query)] });
    ns.rebased = key(query);
  };

  const whole = (state) => `?${state.query}${state.base ? `&base=${encodeURIComponent(state.base)}` : ""}`;

  /* Keep the address and the links of the export menu up to date. */
  ns.address = function (state) {
    const own = state.own ? `&${new URLSearchParams(state.own)}` : "";
    if (window.location.search !== whole(state) + own) {
      // A step of its own in the browser's history where a control changed, unless it is still being dragged.
      const fresh = ns.addressed && ns.addressed.path === window.location.pathname && ns.addressed.query !== state.query && performance.now() - ns.addressed.at > 900;
      ns.pushed = (ns.pushed || 0) + (fresh ? 1 : 0);
      window.history[fresh ? "pushState" : "replaceState"](window.history.state, "", window.location.pathname + whole(state) + own);
    }
    for (const link of document.querySelectorAll("[data-file]")) link.href = `export/${link.dataset.file}?${state.query}`;
    const same = ns.addressed?.path === window.location.pathname && ns.addressed.query === state.query;
    ns.addressed = { path: window.location.pathname, query: state.query, at: same ? ns.addressed.at : performance.now() };
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    page: {
      ...ns.explore,
      /* Let the other pages open on the same state, and mark the one that is shown. */
      address(state, paths) {
        ns.address(state);
        if (!document.getElementById("kpis")) ns.fill("badge", "");
        paths.forEach((path, i) => {
          const link = document.getElementById(`nav-${i}`);
          if (path !== window.location.pathname) return link?.removeAttribute("aria-current");
          link?.setAttribute("aria-current", "page");
          const model = new URLSearchParams(state.query).get("profile")?.split("@")[0];
          document.title = [link?.textContent, model, "Shardscope"].filter(Boolean).join(" · ");
        });
        return paths.map((path) => path + whole(state));
      },
      /* What a page has beside configuration and baseline: values, then their names and the address so far. */
      own(...given) {
        const [names, state] = given.slice(-2);
        const kept = names.map((name, i) => [name, given[i]]).filter(([, value]) => value != null && value !== "");
        return { ...state, own: Object.fromEntries(kept) };
      },
      help(clicks) {
        const drawer = document.getElementById("help");
        if (clicks && !drawer.open) drawer.showModal();
        return window.dash_clientside.no_update;
      },
      theme(clicks, stored) {
        const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
        const now = stored || system;
        const scheme = clicks ? (now === "dark" ? "light" : "dark") : now;
        document.documentElement.dataset.agThemeMode = scheme;
        return [scheme, scheme];
      },
      copyLink(clicks) {
        if (!clicks) return window.dash_clientside.no_update;
        navigator.clipboard.writeText(window.location.href).then(
          () => ns.toast("Link copied", "It holds every control and the pinned baseline.", "green"),
          () => ns.toast("The browser did not allow copying", window.location.href, "red")
        );
        return window.dash_clientside.no_update;
      },
      pair(shown) {
        shown?.forEach((one, i) => {
          ns.showSpans(`timeline-${i}`, ns.fetchSpans(one.query), one.message);
          ns.draw(`partition-${i}-drawing`, one.query && `partition.svg?${one.query}`);
        });
        return window.dash_clientside.no_update;
      },
    },
  });
})();
