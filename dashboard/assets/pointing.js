/* What mouse and keyboard do to a timeline: move, zoom, mark, select, walk from task to task. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});

  ns.Pointed = class extends ns.Painted {
    hit(event) {
      const box = this.canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      return { x, y, ...this.at(x, y) };
    }

    choose(selection) {
      ns.select({ ...selection });
    }

    chooseSpan(i) {
      const run = this.run;
      this.choose({ ...(ns.group != null && { group: ns.group }), task: run.task[i], device: null, layer: null });
      this.say(this.words(i));
    }

    words(i) {
      const run = this.run;
      const layer = run.layer[i] >= 0 ? ` of ${run.layers[run.layer[i]]}` : "";
      const part = run.microbatch[i] >= 0 ? `, micro-batch ${run.microbatch[i]}` : "";
      const where = run.devices[run.lane[i] >> 1];
      return `${run.kinds[run.kind[i]]}${layer}${part} on ${where}: ${ns.time(run.start[i])} + ${ns.time(run.seconds[i])}`;
    }

    hover(event) {
      const { x, y, span } = this.hit(event);
      this.tip.style.display = span < 0 ? "none" : "block";
      if (span < 0) return;
      this.tip.textContent = this.words(span);
      this.tip.style.left = `${Math.min(x + 14, Math.max(0, this.width - this.tip.offsetWidth - 4))}px`;
      this.tip.style.top = `${y + 16}px`;
    }

    listen() {
      const canvas = this.canvas;
      let drag = null;
      canvas.addEventListener("pointerdown", (event) => {
        this.root.focus({ preventScroll: true });
        drag = { x: event.offsetX, view: [...this.view], marks: event.shiftKey, moved: false };
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointermove", (event) => {
        if (!drag) return this.hover(event);
        const moved = event.offsetX - drag.x;
        if (Math.abs(moved) > 3) drag.moved = true;
        if (!drag.moved) return;
        if (drag.marks) {
          this.mark = [this.t(drag.x), this.t(event.offsetX)];
          this.queue();
        } else this.look(drag.view[0] - moved / this.scale, drag.view[1] - moved / this.scale);
      });
      canvas.addEventListener("pointerup", (event) => {
        const was = drag;
        drag = null;
        if (was && was.moved) return was.marks ? this.aggregate() : undefined;
        const { span, device, named } = this.hit(event);
        if (span >= 0) this.chooseSpan(span);
        else if (named && device >= 0 && this.run.members[device] > 1) this.choose({ group: device });
        else if (named && device >= 0) this.choose({ ...(ns.group != null && { group: ns.group }), device: this.run.device_ids[device], task: null, layer: null });
        else this.choose({});
      });
      canvas.addEventListener("pointerleave", () => (this.tip.style.display = "none"));
      canvas.addEventListener("dblclick", () => this.look(0, this.span()));
      canvas.addEventListener("wheel", (event) => {
        // A timeline that nobody has clicked lets the page scroll.
        if (!this.run || (document.activeElement !== this.root && !event.ctrlKey)) return;
        event.preventDefault();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / 600);
        else this.zoom(Math.exp(event.deltaY / 400), this.t(event.offsetX));
      }, { passive: false });
      this.root.addEventListener("keydown", (event) => this.key(event));
    }

    key(event) {
      if (!this.run || event.ctrlKey || event.metaKey || event.altKey) return;
      const actions = {
        w: () => this.zoom(0.7), arrowup: () => this.zoom(0.7),
        s: () => this.zoom(1 / 0.7), arrowdown: () => this.zoom(1 / 0.7),
        a: () => this.pan(-0.2), arrowleft: () => this.pan(-0.2),
        d: () => this.pan(0.2), arrowright: () => this.pan(0.2),
        f: () => this.look(0, this.span()),
        m: () => this.aggregate(),
        c: () => { this.critical = !this.critical; this.say(`critical chain ${this.critical ? "shown" : "hidden"}`); this.queue(); },
        n: () => this.walk(1), p: () => this.walk(-1),
        escape: () => { this.mark = null; this.say(""); this.choose({}); this.queue(); },
      };
      const action = actions[event.key.toLowerCase()];
      if (!action) return;
      event.preventDefault();
      action();
    }

    /* The next or previous span of the lane of the chosen one; without one, the first that is seen. */
    walk(step) {
      const run = this.run;
      const chosen = this.selection.task != null ? this.spansOf(this.selection.task)[0] : undefined;
      let i = chosen === undefined ? ns.firstSpan(run, 0, this.view[0]) : chosen + step;
      const lane = chosen === undefined ? 0 : run.lane[chosen];
      i = Math.min(Math.max(i, run.lane_start[lane]), run.lane_start[lane + 1] - 1);
      const [from, to] = [run.start[i], run.start[i] + run.seconds[i]];
      const width = this.view[1] - this.view[0];
      if (from < this.view[0] || to > this.view[1]) this.look(from - width / 4, from + (width * 3) / 4);
      this.chooseSpan(i);
    }

    aggregate() {
      const range = this.mark || [...this.view];
      this.mark = range;
      const [from, to] = [Math.min(...range), Math.max(...range)];
      const parts = ns.summary(this.run, from, to).map(
        (s) => `${s.count.toLocaleString()} ${s.name}: sum ${ns.time(s.sum)}, mean ${ns.time(s.sum / s.count)}, min ${ns.time(s.min)}, max ${ns.time(s.max)}`
      );
      this.say(`Marked ${ns.time(from)} to ${ns.time(to)} (${ns.time(to - from)}) — ${parts.join(" · ")}`);
      this.queue();
    }
  };
})();
