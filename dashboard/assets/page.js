/* Small things that the page does without asking the server: address, theme, keys, clipboard, image export. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});

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

  /* Before each request for a step: what is shown is no longer the controls' answer, from this moment on. */
  ns.asked = (payload) => {
    if (payload.output.includes("kpis.children")) document.getElementById("results")?.classList.add("stale");
  };

  async function exportCard(id, format) {
    if (id === "partition") return ns.exportPartition(format);
    const canvas = document.querySelector(`#${id} canvas`);
    if (canvas && format === "png" && !document.querySelector(`#${id} .js-plotly-plot`)) {
      canvas.toBlob((blob) => ns.download(`${id}.png`, blob, "image/png"));
      return;
    }
    const graph = document.querySelector(`#${id} .js-plotly-plot`);
    if (format === "csv") return ns.download(`${id}.csv`, csvOf(graph), "text/csv");
    await window.Plotly.downloadImage(graph, { format, filename: id, width: 900, height: 500, scale: format === "png" ? 2 : 1 });
  }

  document.addEventListener("click", (event) => {
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

  document.addEventListener("click", (event) => {
    const run = event.target.closest("[data-load]");
    if (run) window.dash_clientside.set_props("load", { data: run.dataset.load });
    if (event.target.closest("#undo") && ns.pushed > 0) {
      ns.pushed -= 1;
      window.history.back();
    }
  });

  window.addEventListener("pagehide", () => ns.tab && navigator.sendBeacon("leave", ns.tab));

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

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    page: {
      /* Keep the address up to date, and let the other pages open on the same state. */
      address(state, paths) {
        const whole = `?${state.query}${state.base ? `&base=${encodeURIComponent(state.base)}` : ""}`;
        const own = state.own ? `&${new URLSearchParams(state.own)}` : "";
        if (window.location.search !== whole + own) {
          // A step of its own in the browser's history where a control changed, unless it is still being dragged.
          const fresh = ns.addressed && ns.addressed.path === window.location.pathname && ns.addressed.query !== state.query && performance.now() - ns.addressed.at > 900;
          ns.pushed = (ns.pushed || 0) + (fresh ? 1 : 0);
          window.history[fresh ? "pushState" : "replaceState"](window.history.state, "", window.location.pathname + whole + own);
        }
        paths.forEach((path, i) => {
          const link = document.getElementById(`nav-${i}`);
          if (path === window.location.pathname) link?.setAttribute("aria-current", "page");
          else link?.removeAttribute("aria-current");
        });
        ns.addressed = { path: window.location.pathname, query: state.query, at: performance.now() };
        return paths.map((path) => path + whole);
      },
      /* What a page has beside configuration and baseline: values, then their names and the address so far. */
      own(...given) {
        const [names, state] = given.slice(-2);
        const kept = names.map((name, i) => [name, given[i]]).filter(([, value]) => value != null && value !== "");
        return { ...state, own: Object.fromEntries(kept) };
      },
      exports: (state, names) => names.map((name) => `export/${name}?${state.query}`),
      help: (clicks, opened) => (clicks ? !opened : false),
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
      timeline(shown) {
        if (!shown) return window.dash_clientside.no_update;
        ns.query = shown.asked;
        ns.shown = shown;
        ns.group = ns.selected?.group ?? null;
        ns.loadTimeline("timeline", shown.query && `${shown.query}${ns.group == null ? "" : `&group=${ns.group}`}`, shown.message);
        // The table is far down the page: its turn comes when the figures are drawn.
        clearTimeout(ns.refill);
        ns.refill = setTimeout(() => window.dash_ag_grid?.getApiAsync("tasks").then((grid) => grid.purgeInfiniteCache()), 500);
        return window.dash_clientside.no_update;
      },
      /* A baseline for each model and machine: who comes back to one finds what was pinned there. */
      rebase(query, baseline) {
        if (!query) return window.dash_clientside.no_update;
        const key = (text) => ["profile", "cluster"].map((name) => new URLSearchParams(text).get(name)).join(" ");
        const pins = JSON.parse(sessionStorage.getItem("pins") || "{}");
        if (ns.rebased === key(query) || !ns.rebased) {
          if (baseline && key(baseline) === key(query)) pins[key(query)] = baseline;
          sessionStorage.setItem("pins", JSON.stringify(pins));
        } else if (pins[key(query)] && pins[key(query)] !== baseline) window.dash_clientside.set_props("baseline", { data: pins[key(query)] });
        ns.rebased = key(query);
        return window.dash_clientside.no_update;
      },
      answered(answer) {
        if (!answer) return window.dash_clientside.no_update;
        const results = document.getElementById("results");
        results?.classList.toggle("stale", answer.pending);
        results?.classList.toggle("nothing", !answer.pending && !answer.ran);
        results?.setAttribute("aria-busy", answer.pending);
        const cancel = document.getElementById("cancel");
        if (cancel) cancel.style.display = answer.pending ? "" : "none";
        // Only now: Dash drops the answer to a request that was followed by another one.
        if (answer.again) window.dash_clientside.set_props("again", { data: performance.now() });
        return window.dash_clientside.no_update;
      },
      /* The server ends what only a tab that is gone was waiting for. */
      tab(name) {
        if (ns.tab && ns.tab !== name) navigator.sendBeacon("leave", ns.tab);
        ns.tab = name;
        return window.dash_clientside.no_update;
      },
      partition(shown, selection) {
        if (shown) ns.drawPartition(shown.query, selection || {});
        return window.dash_clientside.no_update;
      },
      strategies(ready) {
        if (ready) ns.drawStrategies(ready[0]);
        return window.dash_clientside.no_update;
      },
      pair(shown) {
        if (shown) shown.forEach((one, i) => ns.loadTimeline(`timeline-${i}`, one.query, one.message));
        return window.dash_clientside.no_update;
      },
      /* An upload's own input has no label for a screen reader. */
      nameUploads() {
        for (const field of document.querySelectorAll(".drop-field")) {
          const input = field.querySelector("input[type=file]");
          if (input) input.setAttribute("aria-label", field.dataset.label);
          else setTimeout(() => window.dash_clientside.page.nameUploads(), 200); // the component is still being loaded
        }
        return window.dash_clientside.no_update;
      },
      /* What stands below the first screen is drawn after what is on it, unless it has been scrolled to. */
      below(query, drawnAbove) {
        const top = document.getElementById("below")?.getBoundingClientRect().top;
        const seen = top !== undefined && top < window.innerHeight - 100;
        return query && (seen || drawnAbove === query) ? query : window.dash_clientside.no_update;
      },
      highlight(selection) {
        ns.lightPartition(selection || {});
        const group = selection?.group ?? null;
        if (ns.group !== group && ns.shown) {
          ns.group = group;
          ns.loadTimeline("timeline", ns.shown.query && `${ns.shown.query}${group == null ? "" : `&group=${group}`}`, ns.shown.message);
        }
        const timeline = ns.timeline("timeline");
        if (timeline) {
          timeline.selection = { ...selection, ...(selection && selection.query !== ns.query ? { task: null, waited: null } : {}) };
          timeline.queue();
        }
        return window.dash_clientside.no_update;
      },
      critical(clicks) {
        const timeline = clicks && ns.timeline("timeline");
        if (timeline) timeline.key(new KeyboardEvent("keydown", { key: "c" }));
        return window.dash_clientside.no_update;
      },
      fit(clicks) {
        const timeline = clicks && ns.timeline("timeline");
        if (timeline) timeline.look(0, timeline.span());
        return window.dash_clientside.no_update;
      },
    },
  });
})();
