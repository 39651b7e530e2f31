#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Plots a dashboard of Grafana's from samples: Prometheus answers its queries.
  draw.py SAMPLES DASHBOARD OUT.svg
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

samples, dashboard, out = map(pathlib.Path, sys.argv[1:])
INSTANCE, PORT = "guest", 19253
# Seconds: of rate(), and between the points of a plot.
INTERVAL, STEP = "15s", 1
WIDTH, HEIGHT = 560, 250
COLORS = ["#3266ad", "#c0392b", "#2e8b57", "#b8860b", "#6a3d9a", "#555555", "#008b8b", "#a0522d"]


def openmetrics():
    """The samples with a label and their times; times of the first and the last."""
    now, times, series = None, [], {}
    for line in samples.read_text().splitlines():
        if line.startswith("# time "):
            now = float(line.split()[2])
            times.append(now)
            continue
        name, value = line.rsplit(" ", 1)
        name, _, labels = name.rstrip("}").partition("{")
        labels = ",".join(filter(None, [labels, f'instance="{INSTANCE}"']))
        series.setdefault(name, []).append(f"{name}{{{labels}}} {value} {now:.3f}")
    # All of a metric together, as the format asks for.
    text = "\n".join(line for name in sorted(series) for line in series[name])
    return text + "\n# EOF\n", times[0], times[-1]


def ask(path, **parameters):
    url = f"http://127.0.0.1:{PORT}{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
        return answer.read()


def query(expression, begin, end):
    """[(labels, [(time, value)...])...]"""
    expression = expression.replace("$__rate_interval", INTERVAL).replace("$host", ".*")
    answer = json.loads(ask("/api/v1/query_range", query=expression, start=begin, end=end, step=STEP))
    return [(r["metric"], [(float(t), float(v)) for t, v in r["values"] if v != "NaN"])
            for r in answer["data"]["result"]]


def legend(form, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda m: labels.get(m[1], ""), form).replace(INSTANCE, "").strip()


def shown(value, unit):
    if unit == "percentunit":
        return f"{value * 100:.0f} %"
    if unit == "s":
        return f"{value * 1e6:.0f} µs" if value < 1e-3 else f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.1f} s"
    if unit in ("bytes", "Bps"):
        for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B")):
            if value >= 1 << power or power == 0:
                return f"{value / (1 << power):.4g} {name}" + ("/s" if unit == "Bps" else "")
    return f"{value:.4g}"


def top_of(most, unit):
    """A round number at or above the greatest value."""
    if most <= 0:
        return 1
    scale = 1
    if unit in ("bytes", "Bps"):
        while scale * 1024 <= most:
            scale *= 1024
    else:
        while scale > most:
            scale /= 10
        while scale * 10 <= most:
            scale *= 10
    steps = [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10, 16, 20, 32, 40, 64, 100, 128, 200, 256, 400, 512, 800, 1024]
    return next(s * scale for s in steps if s * scale >= most)


def panel(p, x, y, begin, end):
    unit = p["fieldConfig"]["defaults"].get("unit", "short")
    lines = [(legend(t["legendFormat"], labels), points)
             for t in p["targets"] for labels, points in query(t["expr"], begin, end) if points]
    if not lines:
        sys.exit(f"draw: the run has nothing for \"{p['title']}\"")
    top = top_of(max(v for _, points in lines for _, v in points), unit)
    left, right, upper = x + 74, x + WIDTH - 14, y + 34
    rows = -(-len(lines) // 2)
    lower = y + HEIGHT - 40 - 16 * rows
    svg = [f'<rect x="{x + 4}" y="{y + 4}" width="{WIDTH - 8}" height="{HEIGHT - 8}" fill="#fff" stroke="#ccc"/>',
           f'<text x="{x + 14}" y="{y + 23}" font-weight="bold">{escape(p["title"])}</text>']
    for i in range(5):
        at = lower - (lower - upper) * i / 4
        svg.append(f'<path d="M{left} {at:.1f}H{right}" stroke="#e4e4e4"/>'
                   f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{shown(top * i / 4, unit)}</text>')
    for t in range(0, int(end - begin) + 1, 20):
        at = left + (right - left) * t / (end - begin)
        svg.append(f'<text x="{at:.1f}" y="{lower + 15:.1f}" text-anchor="middle">{t} s</text>')
    for n, (name, points) in enumerate(lines):
        color, path, last = COLORS[n % len(COLORS)], "", None
        for t, v in points:
            # A gap stays one.
            path += "L" if last is not None and t - last <= 1.5 * STEP else "M"
            path += f"{left + (right - left) * (t - begin) / (end - begin):.1f} {lower - (lower - upper) * v / top:.1f}"
            last = t
        svg.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        at = (left + (n % 2) * (right - left) / 2, lower + 34 + 16 * (n // 2))
        svg.append(f'<path d="M{at[0]:.0f} {at[1] - 4:.0f}h14" stroke="{color}" stroke-width="3"/>'
                   f'<text x="{at[0] + 20:.0f}" y="{at[1]:.0f}">{escape(name)}</text>')
    return svg


with tempfile.TemporaryDirectory() as work:
    text, begin, end = openmetrics()
    pathlib.Path(work, "samples").write_text(text)
    pathlib.Path(work, "config").write_text("")
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", f"{work}/samples", f"{work}/data"],
                   check=True, stdout=subprocess.DEVNULL)
    with open(f"{work}/log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(["prometheus", f"--config.file={work}/config", f"--storage.tsdb.path={work}/data",
                                   f"--web.listen-address=127.0.0.1:{PORT}"], stdout=log, stderr=log)
    try:
        for _ in range(300):
            try:
                ask("/-/ready")
                break
            except OSError:
                if server.poll() is not None:
                    break
                time.sleep(0.2)
        else:
            sys.exit("draw: prometheus does not come up:\n" + pathlib.Path(work, "log").read_text())
        panels = json.loads(dashboard.read_text())["panels"]
        columns = 2
        high = -(-len(panels) // columns) * HEIGHT
        svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * WIDTH} {high}" '
               'font-family="sans-serif" font-size="12" fill="#222">',
               f'<rect width="{columns * WIDTH}" height="{high}" fill="#f4f5f5"/>']
        for n, p in enumerate(panels):
            svg += panel(p, n % columns * WIDTH, n // columns * HEIGHT, begin, end)
        out.write_text("\n".join(svg + ["</svg>"]) + "\n")
    finally:
        server.terminate()
        server.wait()
print(f"draw: {out}: {len(panels)} panels, {end - begin:.0f} s")
