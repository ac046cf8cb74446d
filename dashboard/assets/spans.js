/* Spans of a run, as the server packs them (dashboard/figures/span_columns.py), and questions about them. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});
  const ARRAYS = { f8: Float64Array, f4: Float32Array, u4: Uint32Array, u2: Uint16Array, i2: Int16Array, u1: Uint8Array };
  const ROWS = 4; // transfers that stand above each other in one lane at most

  ns.decode = function (buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const run = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    let at = 4 + length;
    for (const [name, kind] of Object.entries(run.columns)) {
      run[name] = new ARRAYS[kind](buffer, at, run.spans);
      at += run[name].byteLength;
    }
    run.lanes = run.lane_start.length - 1;
    stack(run);
    return run;
  };

  /* Give overlapping spans of a lane different rows, and note how far any earlier span of the lane reaches. */
  function stack(run) {
    run.row = new Uint8Array(run.spans);
    run.rows = new Uint8Array(run.lanes).fill(1);
    run.reach = new Float64Array(run.spans);
    const ends = new Float64Array(ROWS);
    const grace = run.step_s * 2e-7; // durations are rounded to 24 bits
    for (let lane = 0; lane < run.lanes; lane++) {
      ends.fill(-1);
      let reach = 0;
      for (let i = run.lane_start[lane]; i < run.lane_start[lane + 1]; i++) {
        const end = run.start[i] + run.seconds[i];
        reach = Math.max(reach, end);
        run.reach[i] = reach;
        if (lane % 2 === 0) continue;
        let row = 0;
        while (row < ROWS - 1 && ends[row] > run.start[i] + grace) row++;
        ends[row] = Math.max(ends[row], end);
        run.row[i] = row;
        run.rows[lane] = Math.max(run.rows[lane], row + 1);
      }
    }
  }

  /* The first span of a lane that is not over by time t. */
  ns.firstSpan = function (run, lane, t) {
    let low = run.lane_start[lane];
    let high = run.lane_start[lane + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (run.reach[middle] < t) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  /* The shortest span of a lane's row at time t, -1 for none; `slack` seconds of grace. row -1: any row. */
  ns.spanAt = function (run, lane, row, t, slack) {
    let found = -1;
    for (let i = ns.firstSpan(run, lane, t - slack); i < run.lane_start[lane + 1] && run.start[i] <= t + slack; i++) {
      if (run.start[i] + run.seconds[i] < t - slack || (row >= 0 && run.row[i] !== row)) continue;
      if (found < 0 || run.seconds[i] < run.seconds[found]) found = i;
    }
    return found;
  };

  /* Count, sum, mean, min and max of the durations of tasks that touch [from, to], by kind; a task counts once. */
  ns.summary = function (run, from, to) {
    const seen = new Set();
    const kinds = new Map();
    for (let i = 0; i < run.spans; i++) {
      if (run.start[i] > to || run.start[i] + run.seconds[i] < from || seen.has(run.task[i])) continue;
      seen.add(run.task[i]);
      const name = run.kinds[run.kind[i]];
      const s = kinds.get(name) || { name, count: 0, sum: 0, min: Infinity, max: 0 };
      s.count += 1;
      s.sum += run.seconds[i];
      s.min = Math.min(s.min, run.seconds[i]);
      s.max = Math.max(s.max, run.seconds[i]);
      kinds.set(name, s);
    }
    return [...kinds.values()];
  };

  ns.time = function (seconds) {
    const size = Math.abs(seconds);
    const [factor, unit] = size >= 1 || size === 0 ? [1, "s"] : size >= 1e-3 ? [1e3, "ms"] : size >= 1e-6 ? [1e6, "us"] : [1e9, "ns"];
    return `${Number((seconds * factor).toPrecision(4))} ${unit}`;
  };
})();
