"""The style sheet of the HTML report: light and dark, wide and narrow. `s0` to `s5` are the colours of charts."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --page: #fcfcfd; --card: #fff; --line: #e2e4e9;
  --s0: #3563d9; --s1: #e0632f; --s2: #1a936f; --s3: #a2469c; --s4: #c9930a; --s5: #8b8f98; --up: #c2321f;
  --down: #18794e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #eceef0; --soft: #a3a8b1; --page: #111214; --card: #191b1f; --line: #2e3137; --s0: #6f95ff;
    --s1: #f58a5c; --s2: #4cc38a; --s3: #d07fca; --s4: #e5b93c; --s5: #858a94; --up: #ff8870;
    --down: #4cc38a;
  }
}
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 60px }
h1 { font-size: 24px; line-height: 1.25; margin: 8px 0 2px }
h2 { font-size: 18px; margin: 36px 0 10px }
p { margin: 0 0 10px }
.soft { color: var(--soft) }
.number { text-align: right; font-variant-numeric: tabular-nums }
.cards {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px; margin: 18px 0;
}
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px }
.card b { display: block; font-size: 22px; line-height: 1.3; font-variant-numeric: tabular-nums }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px }
table { border-collapse: collapse; width: 100% }
th, td { padding: 7px 12px; text-align: left; vertical-align: top }
th { font-weight: 600; font-size: 13px; color: var(--soft); white-space: nowrap }
tr + tr td, thead + tbody td { border-top: 1px solid var(--line) }
td { overflow-wrap: anywhere }
td.name { min-width: 180px }
td.wide { min-width: 240px }
td.id { min-width: 130px }
td.bars { width: 18%; min-width: 90px }
td.number, td.time { white-space: nowrap; overflow-wrap: normal }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { margin: 6px 0 0; white-space: pre-wrap; overflow-wrap: anywhere }
.chart { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px }
.chart svg { display: block; width: 100%; height: auto }
.chart text { fill: var(--soft); font-size: 12px }
.chart line { stroke: var(--line) }
svg.bar { display: block; width: 100%; height: 8px; margin-top: 7px }
.s0 { fill: var(--s0) }
.s1 { fill: var(--s1) }
.s2 { fill: var(--s2) }
.s3 { fill: var(--s3) }
.s4 { fill: var(--s4) }
.s5 { fill: var(--s5) }
g:hover rect { opacity: .75 }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 10px 0 0; padding: 0; list-style: none;
  font-size: 13px;
}
.chart .legend svg { display: inline-block; width: 10px; height: 10px; margin-right: 6px }
.up { color: var(--up) }
.down { color: var(--down) }
.new { border: 1px solid var(--up); color: var(--up); border-radius: 4px; padding: 0 5px; font-size: 12px }
details {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; margin: 0 0 10px;
  padding: 10px 14px;
}
summary { cursor: pointer; overflow-wrap: anywhere }
.sample { border-top: 1px solid var(--line); margin-top: 10px; padding-top: 10px }
@media (max-width: 620px) {
  main { padding: 16px 12px 40px }
  .chart { padding: 8px 4px }
  .chart text { font-size: 26px }
  .chart .narrow, .bars { display: none }
  th, td { padding: 6px 8px }
}
"""
