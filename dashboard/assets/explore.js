/* Explore: from the controls to what is shown. The page fetches its panels by itself and fills them in: numbers first,
   then the timeline, then what can be seen, then the rest, and what is simulated behind it only when nothing happens. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});
  const PAUSE_MS = 300, AGAIN_MS = 900;
  const latest = {}; // the request of each panel that counts
  let asked = null; // what the controls last asked for
  let turns = 0; // how often the strategies were begun to be asked for
  let following = null; // everything that follows from it, as something that can be stopped

  const set = (id, values) => window.dash_clientside.set_props(id, values);
  const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  // A click comes before what follows, but no frame is waited for: figures that are drawn together are painted once.
  const yielded = () => window.scheduler?.yield?.() ?? rest(0);

  // No frame comes to a page that is not seen.
  const painted = () => Promise.race([rest(100), new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))]);

  let sends = 0; // numbered, as the server may handle them in another order

  ns.post = async function post(name, sent, signal) {
    const head = { "Content-Type": "application/json" };
    const answer = await fetch(`panel/${name}`, { method: "POST", headers: head, body: JSON.stringify({ ...sent, number: ++sends }), signal });
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    return answer.json();
  };

  ns.fill = function (id, html) {
    const root = document.getElementById(id);
    if (root && root.shown !== html) root.innerHTML = root.shown = html;
  };

  /* What shows a panel's answer, or nothing where a later request has overtaken this one. */
  async function panel(name, more) {
    latest[name]?.abort();
    const control = (latest[name] = new AbortController());
    const sent = { query: ns.query, base: asked.base, selection: ns.selection || {}, tab: asked.tab, ...more };
    const answer = await ns.post(name, sent, control.signal).catch((error) => {
      if (error.name === "AbortError") return null;
      throw error;
    });
    return async () => {
      if (!answer || control.signal.aborted) return {};
      for (const [id, html] of Object.entries(answer.html || {})) ns.fill(id, html);
      for (const [id, hidden] of Object.entries(answer.hidden || {})) document.getElementById(id)?.style.setProperty("display", hidden ? "none" : "block");
      if (answer.toasts) set("toasts", { sendNotifications: answer.toasts });
      for (const [id, figure] of Object.entries(answer.figures || {})) {
        if (control.signal.aborted) break;
        if (!document.getElementById(id)?.offsetParent) continue; // it is drawn when its tab is opened
        await ns.plot(id, figure, control.signal);
        await yielded();
      }
      return answer;
    };
  }

  const quietly = (work) => work.catch((error) => {
    if (error.name !== "AbortError") ns.toast("No answer", `The dashboard's server did not answer: ${error.message}`, "red");
  });

  const views = { by: "device", phase: "all", scale: "lin", split: "step" };
  const redraw = (name) => ns.query && quietly(panel(name, views).then((show) => show()));

  /* What each tab draws of an answer; the other one's is drawn when it is opened. */
  const panes = {
    answer: (shown) => [
      ["grid-card", () => panel("answer")],
      ["partition", () => ns.drawPartition(shown, shown ? ns.selection || {} : {})],
    ],
    machine: () => [["detail", () => panel("answer")], ["machine", () => panel("machine", views)]],
  };
  const pane = () => document.getElementById("results").dataset.pane;
  let last = null, opened = new AbortController(); // the answer that is shown, and what a change of tabs draws of it

  function open(name) {
    document.getElementById("results").dataset.pane = name;
    for (const button of document.querySelectorAll("[role=tab]")) button.setAttribute("aria-selected", button.dataset.pane === name);
    window.dispatchEvent(new Event("resize")); // figures that were hidden have the size of another window
    opened.abort();
    opened = new AbortController();
    following?.signal.addEventListener("abort", () => opened.abort());
    if (!last || following?.signal.aborted) return;
    delete document.getElementById("results").dataset.drawn; // not before this tab is
    quietly(follow(last, opened.signal));
  }

  /* What a click on a figure selects, by the data of the point that it hit. */
  ns.picks = {
    "balance-graph": ([hit, , more, group]) => ns.select(views.by === "device" && more ? { group } : { [views.by]: hit }),
    "grid-graph": ([device]) => ns.select({ device }),
  };

  /* The controls' step: what is shown is no longer their answer, from this moment on. */
  async function ask(sent) {
    if (asked && JSON.stringify(asked) === JSON.stringify(sent) && !following.signal.aborted) return; // on its way
    const results = document.getElementById("results");
    if (!results) return;
    if (ns.tab !== sent.tab) leave(sent.tab);
    results.classList.add("stale");
    delete results.dataset.drawn;
    following?.abort();
    for (const control of Object.values(latest)) control.abort();
    const control = (following = new AbortController());
    asked = sent;
    let answer = { again: false };
    let best = new AbortController(); // of what follows from a search's best plan so far
    control.signal.addEventListener("abort", () => best.abort());
    do {
      answer = await ns.post("step", { ...sent, again: answer.again, showing: best.showing, profile: ns.profile }, control.signal);
      if (control.signal.aborted || control.cancelled) return;
      if (answer.failed) return take(answer, results);
      if (answer.controls) for (const request of Object.values(latest)) request.abort(); // theirs is the plan before
      take(answer, results);
      if (!answer.pending || !answer.ran || answer.showing === best.showing) continue;
      best.abort();
      best = Object.assign(new AbortController(), { showing: answer.showing });
      quietly(follow(answer, best.signal));
    } while (answer.again);
    best.abort();
    await follow(answer, control.signal);
  }

  /* The server ends what only a tab that is gone was waiting for. */
  const sayLeave = () => ns.tab && navigator.sendBeacon("leave", `${ns.tab} ${++sends}`);
  window.addEventListener("pagehide", sayLeave);
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted || !asked) return;
    following?.abort(); // a page that was kept is shown again
    quietly(ask(asked));
  });

  function leave(tab) {
    sayLeave();
    // Dash remembers what was done, for an undo that this page does not use, and with it the table of every page before.
    const { past = [], present, future = [] } = window.store?.getState().history || {};
    for (const step of [...past, present, ...future]) if (step?.props?.getRowsRequest) step.props.getRowsRequest = null;
    Object.assign(ns, { tab, query: null, shown: null, profile: null, selection: {}, group: null });
  }

  function take(answer, results) {
    for (const [id, html] of Object.entries(answer.html || {})) ns.fill(id, html);
    if (answer.toasts?.length) set("toasts", { sendNotifications: answer.toasts });
    if (answer.failed) return ns.fill("badge", '<span class="badge red">no answer</span>');
    ns.asking = answer.query;
    results.classList.toggle("stale", answer.pending && !answer.ran);
    results.classList.toggle("nothing", !answer.pending && (!answer.ran || answer.undrawn));
    results.setAttribute("aria-busy", answer.pending);
    document.getElementById("cancel").style.display = answer.pending ? "" : "none";
    ns.address(answer.address);
  }

  async function follow(answer, signal) {
    const shown = answer.ran && !answer.undrawn ? `${answer.query}${answer.best ? `&best=${answer.best}` : ""}` : null;
    // The tasks of one plan of a search are not those of the next.
    if (ns.selection?.task != null && ns.query === answer.query && ns.shown !== shown) ns.select({});
    Object.assign(ns, { query: answer.query, shown, words: answer.words, message: shown ? "" : answer.undrawn || "no timeline: there is no run to show" });
    ns.group = ns.selection?.group ?? null;
    document.getElementById("partition-title").textContent = answer.words;
    last = answer;
    const seen = pane();
    const spans = Promise.resolve(seen === "answer" ? ns.fetchSpans(ns.timelineQuery(), signal) : null);
    const requests = panes[seen](shown);
    requests.sort(([one], [other]) => inView(other) - inView(one));
    // First what can be seen, one after the other, each while what came before it is drawn; then the rest together.
    let before = spans;
    const parts = requests.map(([id, request]) => {
      const part = before.then(() => (signal.aborted ? null : request()));
      part.catch(() => {}); // its error is met where it is awaited
      if (inView(id)) before = part.catch(() => {});
      return part;
    });
    if (ns.profile == null) await painted();
    setControls(answer);
    if (seen === "answer") await ns.showSpans("timeline", spans, ns.message);
    for (const part of parts) {
      if (signal.aborted) return;
      const show = await part;
      if (typeof show === "function") await show();
    }
    if (signal.aborted) return;
    tell(answer);
    document.getElementById("results").dataset.drawn = answer.query;
    if (seen === "answer"); // has no table of tasks
    else if (!document.getElementById("tasks")) set("drawn", { data: true }); // it comes
    else window.dash_ag_grid?.getApiAsync("tasks").then((grid) => grid.purgeInfiniteCache());
    let tried = { waiting: true, ready: null };
    const turn = ++turns; // a tab that opens asks anew, in place of the one before
    for (let wait = PAUSE_MS; tried.waiting; wait = AGAIN_MS) {
      await rest(wait);
      if (signal.aborted || turn !== turns || asked.tab !== ns.tab || !document.getElementById("strategies")) return;
      const before = String(tried.ready);
      const show = await panel("strategies", { ready: tried.ready, best: answer.best });
      tried = await show();
      if (signal.aborted || turn !== turns) return;
      if (String(tried.ready) !== before) ns.drawStrategies(shown ? answer.query : null);
    }
  }

  /* What other pages and callbacks read: told once all is drawn, as every component of Dash wakes up for it. */
  function tell(answer) {
    ns.remember(answer.query, answer.words);
    set("configuration", { data: answer.query });
    set("address", { data: answer.address });
    ns.rebase(answer.query, asked.base);
  }

  function inView(id) {
    const box = document.getElementById(id)?.getBoundingClientRect();
    return box && box.bottom > 0 && box.top < window.innerHeight ? 1 : 0;
  }

  /* Every property that is set costs the page some milliseconds, so only those that change are. */
  const controls = {};
  function setControls(answer) {
    if (answer.layers) set("find-layer", { data: answer.layers });
    const fresh = ns.profile == null; // a page of its own
    ns.profile = answer.profile;
    for (const [id, { remark, ...values }] of Object.entries(answer.controls)) {
      if (remark != null) document.getElementById(`${id}-remark`).textContent = remark;
      const text = JSON.stringify(values);
      if (!fresh && controls[id] === text) continue;
      controls[id] = text;
      set(id, values);
    }
  }

  /* Back to what is shown; where that is of these controls, or nothing, the page says that the search was cancelled. */
  async function cancel() {
    const search = following;
    search.cancelled = true; // its request comes to an end: the server takes a tab that hangs up for one that is gone
    await ns.post("cancel", { values: asked.values, tab: ns.tab }).finally(() => search.abort());
    if (following !== search) return; // the controls have changed by now
    if (ns.query && ns.query !== ns.asking) set("load", { data: ns.query }); // whose answer is shown as it comes
    else await ask(asked);
  }

  const clicks = {
    "tab-answer": () => open("answer"),
    "tab-machine": () => open("machine"),
    "to-controls": () => document.querySelector(".rail").scrollIntoView(),
    pin: () => set("baseline", { data: ns.query }),
    unpin: () => set("baseline", { data: null }),
    cancel: () => quietly(cancel()),
    critical: () => ns.timeline("timeline")?.key(new KeyboardEvent("keydown", { key: "c" })),
    fit: () => ns.timeline("timeline")?.look(0, ns.timeline("timeline").span()),
    undo: () => ns.pushed > 0 && (ns.pushed--, window.history.back()),
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button, a");
    if (!button) return;
    clicks[button.id]?.();
    if (button.dataset.load) set("load", { data: button.dataset.load });
    if (button.dataset.task) ns.select({ task: +button.dataset.task });
    const link = button.dataset.page && document.querySelector(`.nav-link[href^="${button.dataset.page}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
  });

  ns.timelineQuery = () => ns.shown && `${ns.shown}${ns.group == null ? "" : `&group=${ns.group}`}`;

  ns.explore = {
    step(...values) {
      const tab = values.pop();
      const base = values.pop();
      quietly(ask({ values, base, tab }));
      return window.dash_clientside.no_update;
    },
    views(by, phase, scale, split) {
      Object.assign(views, { by, phase, scale, split });
      redraw("machine");
      return window.dash_clientside.no_update;
    },
    highlight(selection) {
      const before = ns.selection || {};
      ns.selection = selection || {};
      ns.lightPartition(ns.selection);
      const group = ns.selection.group ?? null;
      if (ns.group !== group && ns.query) {
        ns.group = group;
        ns.showSpans("timeline", ns.fetchSpans(ns.timelineQuery()), ns.message);
      }
      const timeline = ns.timeline("timeline");
      if (timeline) {
        timeline.selection = { ...ns.selection, ...(ns.selection.query !== ns.query ? { task: null, waited: null } : {}) };
        timeline.queue();
      }
      if (JSON.stringify(before) !== JSON.stringify(ns.selection)) {
        redraw("answer");
        if (pane() === "machine") redraw("machine");
        else if (ns.query) ns.drawPartition(ns.shown, ns.selection);
      }
      return window.dash_clientside.no_update;
    },
  };
})();
