/* Plotly's figures on Explore: each is made when there is something to draw, and plotly.js is loaded after the numbers. */
(function () {
  "use strict";
  const ns = (window.shardscope = window.shardscope || {});
  const plots = new Map(); // the figure that each shows, as text
  let library = null;

  /* plotly.js from where dcc.Graph has it: reading it takes the browser's main thread longer than all other scripts. */
  function load() {
    return (library ||= new Promise((resolve, reject) => {
      if (window.Plotly) return resolve();
      const failed = () => reject(new Error("plotly.js could not be loaded"));
      document.head.append(Object.assign(document.createElement("script"), { src: window._dashPlotlyJSURL, onload: resolve, onerror: failed }));
    }));
  }

  function added(place) {
    for (const old of plots.keys()) {
      if (old.isConnected) continue;
      window.Plotly.purge(old); // its page is gone
      plots.delete(old);
    }
    const plot = document.createElement("div");
    plot.style.height = "100%";
    place.replaceChildren(plot);
    return plot;
  }

  /* Draw a figure in its place (frame/cards.py's plot) unless it is what is shown. */
  ns.plot = async function (id, figure, signal) {
    await load();
    const place = document.getElementById(id);
    if (!place || signal.aborted) return;
    const fresh = !place.firstElementChild;
    const plot = fresh ? added(place) : place.firstElementChild;
    const text = JSON.stringify(figure);
    if (plots.get(plot) === text) return;
    plots.set(plot, text);
    if (!fresh) return window.Plotly.react(plot, figure.data, figure.layout);
    const drawn = window.Plotly.newPlot(plot, figure.data, figure.layout, JSON.parse(place.dataset.config));
    plot.on("plotly_click", ({ points: [point] }) => point.customdata && ns.picks[id]?.(point.customdata));
    await drawn;
  };
})();
