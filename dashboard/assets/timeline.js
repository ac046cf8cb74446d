/* The timeline: what it shows, which part of it, and how it is filled. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});
  const timelines = new Map();

  class Timeline extends ns.Pointed {
    constructor(root) {
      super();
      this.root = root;
      this.canvas = document.createElement("canvas");
      this.tip = document.createElement("div");
      this.tip.className = "timeline-tip";
      this.status = document.createElement("div");
      this.status.className = "timeline-status";
      this.status.setAttribute("aria-live", "polite");
      root.replaceChildren(this.canvas, this.tip, this.status);
      this.run = null;
      this.selection = {};
      this.critical = false;
      this.mark = null;
      this.view = [0, 1];
      this.observers = [new ResizeObserver(() => this.draw()), new MutationObserver(() => this.draw())];
      this.observers[0].observe(root);
      this.observers[1].observe(document.documentElement, { attributes: true });
      this.listen();
    }

    close() {
      for (const observer of this.observers) observer.disconnect();
      this.run = null;
    }

    show(run, message) {
      const before = this.run ? [this.view[0] / this.span(), this.view[1] / this.span()] : [0, 1];
      const whole = before[0] <= 0 && before[1] >= 1;
      this.run = run;
      this.message = message;
      this.mark = null;
      this.say("");
      this.look(...(whole ? [0, 1] : before).map((share) => share * this.span())); // draws all that are linked
    }

    /* Seconds that the axis can show: the longest step of all linked timelines. */
    span() {
      return Math.max(...this.linked().map((one) => (one.run ? one.run.step_s : 0)), 1e-12);
    }

    linked() {
      const group = this.root.dataset.group;
      return group ? [...timelines.values()].filter((one) => one.root.dataset.group === group) : [this];
    }

    look(from, to) {
      const span = this.span();
      const width = Math.min(Math.max(to - from, span * 1e-7), span);
      const start = Math.min(Math.max(from, 0), span - width);
      for (const one of this.linked()) {
        one.view = [start, start + width];
        one.queue();
      }
    }

    zoom(factor, at) {
      const [from, to] = this.view;
      const centre = at === undefined ? (from + to) / 2 : at;
      this.look(centre - (centre - from) * factor, centre + (to - centre) * factor);
    }

    pan(share) {
      const width = this.view[1] - this.view[0];
      this.look(this.view[0] + share * width, this.view[1] + share * width);
    }

    queue() {
      if (this.queued) return;
      this.queued = true;
      requestAnimationFrame(() => {
        this.queued = false;
        this.draw();
      });
    }

    say(text) {
      this.status.textContent = text;
    }
  }

  /* The timeline that lives in the element of this id, made when it is first asked for. */
  ns.timeline = function (id) {
    const root = document.getElementById(id);
    if (!root) return null;
    for (const [name, old] of timelines)
      if (!old.root.isConnected) {
        old.close(); // its page is gone
        timelines.delete(name);
      }
    const known = timelines.get(id);
    if (known && known.root === root) return known;
    timelines.set(id, new Timeline(root));
    return timelines.get(id);
  };

  /* The spans of a run as the server packs them, null without a query; an Error where they could not be had. */
  ns.fetchSpans = async function (query, signal) {
    if (!query) return null;
    try {
      const answer = await fetch(`spans?${query}`, { signal });
      return answer.ok ? await answer.arrayBuffer() : new Error(await answer.text());
    } catch (error) {
      return error;
    }
  };

  /* Show them, or `message` where there are none, unless other spans were asked for meanwhile. */
  ns.showSpans = async function (id, spans, message) {
    const timeline = ns.timeline(id);
    if (!timeline) return;
    const ticket = (timeline.ticket = (timeline.ticket || 0) + 1);
    try {
      const packed = await spans;
      if (packed instanceof Error) throw packed;
      const run = packed && ns.decode(packed);
      if (ticket === timeline.ticket) timeline.show(run, run ? "" : message);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (ticket === timeline.ticket) timeline.show(null, `The timeline could not be loaded: ${error.message}`);
    }
  };
})();
