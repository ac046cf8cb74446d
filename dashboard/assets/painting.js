/* How a timeline is painted: one canvas, drawn whole; spans narrower than a pixel are merged while drawing.
   A thing that is painted has a root, a canvas, a run, a view, a selection and a mark (timeline.js). */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});
  const CRITICAL = "#D55E00";
  const GUTTER = 92, AXIS = 20, STRIP = 30, GAP = 3, RIGHT = 10;

  ns.Painted = class {
    draw() {
      const began = performance.now();
      const style = getComputedStyle(this.root);
      this.ink = style.getPropertyValue("--timeline-ink") || "#333";
      this.grid = style.getPropertyValue("--timeline-grid") || "#ddd";
      this.letters = style.fontFamily;
      this.paper = style.getPropertyValue("--timeline-paper") || "#fff";
      this.place();
      const pen = this.canvas.getContext("2d");
      pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      pen.clearRect(0, 0, this.width, this.height);
      if (!this.run) {
        pen.fillStyle = this.ink;
        pen.font = `13px ${this.letters}`;
        pen.fillText(this.message || "", 12, 24);
        return;
      }
      this.drawAxis(pen);
      this.drawStrip(pen);
      for (let lane = 0; lane < this.run.lanes; lane++) this.drawLane(pen, lane);
      this.drawNames(pen);
      this.drawMark(pen);
      this.drawSelected(pen);
      this.root.dataset.spans = this.run.spans;
      this.root.dataset.paintMs = (performance.now() - began).toFixed(1);
      this.root.dataset.view = this.view.join(",");
    }

    place() {
      const devices = this.run ? this.run.lanes / 2 : 1;
      const most = Math.min(Math.max(320, devices * 22), 900);
      const each = Math.min(30, Math.max(10, (most - AXIS - STRIP) / devices));
      this.compute = Math.max(6, Math.round(each * 0.56));
      this.link = Math.max(3, Math.round(each - this.compute - GAP));
      this.each = this.compute + this.link + GAP;
      this.width = this.root.clientWidth;
      this.height = this.run ? AXIS + STRIP + devices * this.each + 6 : 80;
      this.ratio = window.devicePixelRatio || 1;
      const [w, h] = [Math.round(this.width * this.ratio), Math.round(this.height * this.ratio)];
      if (this.canvas.width !== w || this.canvas.height !== h) {
        this.canvas.width = w;
        this.canvas.height = h;
        this.canvas.style.width = this.width + "px";
        this.canvas.style.height = this.height + "px";
      }
      this.scale = (this.width - GUTTER - RIGHT) / (this.view[1] - this.view[0]);
    }

    x(t) {
      return GUTTER + (t - this.view[0]) * this.scale;
    }

    t(x) {
      return this.view[0] + (x - GUTTER) / this.scale;
    }

    top(lane) {
      return AXIS + STRIP + (lane >> 1) * this.each + (lane % 2 ? this.compute : 0);
    }

    drawAxis(pen) {
      const raw = (this.view[1] - this.view[0]) / Math.max(2, (this.width - GUTTER) / 130);
      const power = Math.pow(10, Math.floor(Math.log10(raw)));
      const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
      pen.font = `11px ${this.letters}`;
      pen.lineWidth = 1;
      for (let t = Math.ceil(this.view[0] / step) * step; t <= this.view[1]; t += step) {
        const x = Math.round(this.x(t)) + 0.5;
        pen.strokeStyle = this.grid;
        pen.beginPath();
        pen.moveTo(x, AXIS - 4);
        pen.lineTo(x, this.height);
        pen.stroke();
        pen.fillStyle = this.ink;
        const text = ns.time(Math.abs(t) < step / 2 ? 0 : t);
        pen.fillText(text, Math.min(x + 3, this.width - pen.measureText(text).width - 2), AXIS - 8);
      }
    }

    drawStrip(pen) {
      const bins = this.run.utilisation;
      const width = this.run.step_s / bins.length;
      const [floor, size] = [AXIS + STRIP - 6, STRIP - 10];
      pen.save();
      pen.beginPath();
      pen.rect(GUTTER, 0, this.width - GUTTER - RIGHT, this.height);
      pen.clip();
      pen.fillStyle = this.run.colours[0] + "55";
      for (let i = 0; i < bins.length; i++) {
        const [from, to] = [this.x(i * width), this.x((i + 1) * width)];
        pen.fillRect(from, floor - bins[i] * size, to - from + 0.5, bins[i] * size);
      }
      pen.restore();
      pen.strokeStyle = this.grid;
      pen.strokeRect(GUTTER + 0.5, floor - size + 0.5, this.width - GUTTER - RIGHT, size);
    }

    drawLane(pen, lane) {
      const run = this.run;
      const heights = (lane % 2 ? this.link : this.compute) / run.rows[lane];
      const top = this.top(lane);
      const [t0, t1] = this.view;
      const right = this.width - RIGHT;
      const { layer, layers, device } = this.selection;
      const lit = layers ? new Set(layers) : layer != null ? new Set([layer]) : null;
      const dimmed = device != null && run.device_ids.includes(device) && device !== run.device_ids[lane >> 1];
      const drawn = new Float64Array(64).fill(-10); // rightmost pixel that is covered, by row, kind and dimness
      let style = "";
      for (let i = ns.firstSpan(run, lane, t0); i < run.lane_start[lane + 1] && run.start[i] <= t1; i++) {
        const kind = run.kind[i];
        const faint = dimmed || (lit && !lit.has(run.layer[i]));
        const slot = (run.row[i] * 8 + kind) * 2 + (faint ? 1 : 0);
        let from = this.x(run.start[i]);
        let to = this.x(run.start[i] + run.seconds[i]);
        if (to <= drawn[slot]) continue;
        from = Math.max(from, GUTTER, to - from < 1 ? drawn[slot] : from);
        to = Math.min(Math.max(to, from + 1), right);
        if (to <= from) continue;
        drawn[slot] = to;
        const colour = run.colours[kind] + (faint ? "2e" : "");
        if (colour !== style) pen.fillStyle = style = colour;
        const y = top + run.row[i] * heights;
        pen.fillRect(from, y, to - from > 4 ? to - from - 0.6 : to - from, Math.max(heights - 0.5, 1));
        if (this.critical && run.flag[i] & 1) {
          pen.fillStyle = style = CRITICAL;
          pen.fillRect(from, y + heights - 2.5, to - from, 2.5);
        }
      }
    }

    drawNames(pen) {
      pen.textAlign = "right";
      for (let device = 0; device < this.run.devices.length; device++) {
        const chosen = this.selection.device === this.run.device_ids[device];
        pen.fillStyle = this.ink;
        pen.font = `${chosen ? "bold " : ""}${Math.min(12, this.each - 1)}px ${this.letters}`;
        pen.fillText(this.run.devices[device], GUTTER - 8, this.top(2 * device) + this.compute * 0.8);
        if (this.link >= 9) {
          pen.font = `10px ${this.letters}`;
          pen.globalAlpha = 0.75;
          pen.fillText("receives", GUTTER - 8, this.top(2 * device + 1) + this.link * 0.85);
          pen.globalAlpha = 1;
        }
      }
      pen.font = `10px ${this.letters}`;
      pen.fillText("computing", GUTTER - 8, AXIS + STRIP - 12);
      pen.textAlign = "left";
    }

    drawMark(pen) {
      if (!this.mark) return;
      const [from, to] = [this.x(Math.min(...this.mark)), this.x(Math.max(...this.mark))];
      pen.fillStyle = "rgba(34,139,230,0.16)";
      pen.fillRect(Math.max(from, GUTTER), AXIS, Math.min(to, this.width) - Math.max(from, GUTTER), this.height - AXIS);
    }

    drawSelected(pen) {
      for (const [task, colour] of [[this.selection.waited, CRITICAL], [this.selection.task, this.ink]]) {
        if (task == null || task < 0) continue;
        for (const i of this.spansOf(task)) {
          const lane = this.run.lane[i];
          const height = (lane % 2 ? this.link : this.compute) / this.run.rows[lane];
          const from = this.x(this.run.start[i]);
          pen.strokeStyle = colour;
          pen.lineWidth = 2;
          pen.strokeRect(from - 1, this.top(lane) + this.run.row[i] * height - 1, Math.max(this.run.seconds[i] * this.scale, 2) + 2, height + 2);
        }
      }
    }

    spansOf(task) {
      const found = [];
      for (let i = 0; i < this.run.spans; i++) if (this.run.task[i] === task) found.push(i);
      return found;
    }

    /* What lies at a place of the canvas: the span (-1: none) and the device (-1: none). */
    at(x, y) {
      const device = Math.floor((y - AXIS - STRIP) / this.each);
      if (!this.run || device < 0 || device >= this.run.lanes / 2) return { span: -1, device: -1 };
      const lane = 2 * device + (y - this.top(2 * device) >= this.compute ? 1 : 0);
      const row = Math.floor((y - this.top(lane)) / ((lane % 2 ? this.link : this.compute) / this.run.rows[lane]));
      const span = x < GUTTER ? -1 : ns.spanAt(this.run, lane, row, this.t(x), 1.5 / this.scale);
      return { span, device, named: x < GUTTER };
    }
  };
})();
