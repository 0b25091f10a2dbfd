// Bars over time, stacked. One path for each series, on whole pixels. By keyboard it is a slider over its buckets; the same
// numbers stand in a table that opens below.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import "./chart.css";
import { niceTop } from "./scale.ts";
import { Time, exactText, timeForm } from "./time.tsx";

export interface Series {
  name: string;
  /** A colour of the tokens. */
  colour: string;
}
export interface Bar {
  from: number;
  to: number;
  /** One for each series; `null` if it is not known. */
  values: readonly number[] | null;
  /** Whether the numbers are lower bounds. */
  more?: boolean;
}

const HEIGHT = 132;
const AXIS_PX = 20;
const TOP_PX = 8;

function clock(ms: number, withDay: boolean): string {
  const date = new Date(ms);
  const isUtc = timeForm.value === "utc";
  const [hours, minutes] = isUtc ? [date.getUTCHours(), date.getUTCMinutes()] : [date.getHours(), date.getMinutes()];
  const day = date.toLocaleDateString("en", { weekday: "short", day: "numeric", ...(isUtc ? { timeZone: "UTC" } : {}) });
  const time = `${String(hours).padStart(2, "0")}:${String(minutes).padStart(2, "0")}`;
  return withDay ? day : time;
}

interface Props {
  label: string;
  series: readonly Series[];
  bars: readonly Bar[];
  /** Where a bucket leads. */
  onOpen: (bar: Bar) => void;
}

export function Chart({ label, series, bars, onOpen }: Props): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => {
    if (box.current === null) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const most = Math.max(0, ...bars.map((bar) => (bar.values ?? []).reduce((sum, value) => sum + value, 0)));
  const top = niceTop(most);
  const left = 8 + String(top.toLocaleString("en")).length * 7;
  const step = Math.max(1, (width - left) / Math.max(1, bars.length));
  const place = (event: PointerEvent) => {
    const rect = (event.currentTarget as Element).getBoundingClientRect();
    const index = Math.floor((event.clientX - rect.left - left) / step);
    setAt(index >= 0 && index < bars.length ? index : null);
  };
  const shown = at === null ? undefined : bars[at];
  const keyed = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -bars.length, End: bars.length }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      setAt(Math.min(Math.max((at ?? (by > 0 ? -1 : bars.length)) + by, 0), bars.length - 1));
    } else if (event.key === "Enter" && shown !== undefined) {
      event.preventDefault();
      onOpen(shown);
    }
  };
  return (
    <div class="chart">
      <div
        ref={box}
        class="chart-plot"
        role="slider"
        tabIndex={0}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={bars.length - 1}
        aria-valuenow={at ?? bars.length - 1}
        aria-valuetext={saying(shown ?? bars.at(-1), series)}
        onKeyDown={keyed}
        onBlur={() => setAt(null)}
        onPointerMove={place}
        onPointerLeave={() => setAt(null)}
        onClick={() => shown !== undefined && onOpen(shown)}
      >
        {width > 0 && <Plot series={series} bars={bars} width={width} left={left} step={step} top={top} at={at} />}
        {shown !== undefined && at !== null && <Tip bar={shown} series={series} x={left + (at + 0.5) * step} width={width} />}
      </div>
      <Table label={label} series={series} bars={bars} />
    </div>
  );
}

function Plot({
  series,
  bars,
  width,
  left,
  step,
  top,
  at,
}: {
  series: readonly Series[];
  bars: readonly Bar[];
  width: number;
  left: number;
  step: number;
  top: number;
  at: number | null;
}): JSX.Element {
  const base = HEIGHT - AXIS_PX;
  const scale = (base - TOP_PX) / top;
  const paths = series.map(() => "");
  const unknown: string[] = [];
  bars.forEach((bar, index) => {
    const x = Math.round(left + index * step);
    const wide = Math.max(1, Math.round(left + (index + 1) * step) - x - (step >= 4 ? 1 : 0));
    if (bar.values === null) unknown.push(`M${x} ${TOP_PX}h${wide}V${base}h${-wide}z`);
    let sum = 0;
    (bar.values ?? []).forEach((value, which) => {
      if (value <= 0) return;
      const below = Math.round(base - sum * scale);
      sum += value;
      // A single failure among thousands must be seen.
      const above = Math.min(Math.round(base - sum * scale), below - 2);
      paths[which] += `M${x} ${above}h${wide}V${below}h${-wide}z`;
    });
  });
  const span = (bars.at(-1)?.to ?? 0) - (bars[0]?.from ?? 0);
  const withDay = span > 2 * 86_400_000;
  const every = Math.max(1, Math.ceil(64 / step));
  const ticks = bars.flatMap((bar, index) => (isTick(bars, index, every, withDay) ? [{ index, from: bar.from }] : []));
  return (
    <svg width={width} height={HEIGHT} aria-hidden="true" focusable="false">
      {[0, top / 2, top].map((value) => {
        const y = Math.round(base - value * scale) + 0.5;
        return (
          <g key={value}>
            <line x1={left} x2={width} y1={y} y2={y} class={value === 0 ? "base" : "grid"} />
            {Number.isInteger(value) && (
              <text x={left - 6} y={y + 3.5} text-anchor="end">
                {value.toLocaleString("en")}
              </text>
            )}
          </g>
        );
      })}
      {at !== null && <rect class="at" x={left + at * step} y={TOP_PX} width={step} height={base - TOP_PX} />}
      {unknown.length > 0 && <path class="unknown" d={unknown.join("")} />}
      {paths.map((path, which) => (
        <path key={which} d={path} style={{ fill: series[which]?.colour }} />
      ))}
      {ticks.map(({ index, from }) => (
        <text key={index} x={Math.max(left + index * step, left)} y={HEIGHT - 5}>
          {clock(from, withDay)}
        </text>
      ))}
    </svg>
  );
}

/** Ticks stand at round times, and never so close that their texts touch. */
function isTick(bars: readonly Bar[], index: number, every: number, withDay: boolean): boolean {
  const bar = bars[index];
  if (bar === undefined || index > bars.length - every * 0.8) return false;
  const width = bar.to - bar.from;
  const offset = timeForm.value === "utc" ? 0 : new Date(bar.from).getTimezoneOffset() * 60_000;
  const local = bar.from - offset;
  const round = withDay
    ? 86_400_000
    : ([5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440]
        .map((minutes) => minutes * 60_000)
        .find((size) => size >= width * every) ?? 86_400_000);
  return local % round < width;
}

function saying(bar: Bar | undefined, series: readonly Series[]): string {
  if (bar === undefined) return "nothing";
  if (bar.values === null) return `${exactText(bar.from).split("\n")[0] ?? ""}: not counted`;
  const parts = bar.values.flatMap((value, which) =>
    value > 0 ? [`${value.toLocaleString("en")} ${series[which]?.name ?? ""}`] : [],
  );
  return `${exactText(bar.from).split("\n")[0]?.slice(0, 16) ?? ""}: ${parts.join(", ") || "none"}`;
}

function Tip({ bar, series, x, width }: { bar: Bar; series: readonly Series[]; x: number; width: number }): JSX.Element {
  const side = x > width / 2 ? { right: `${width - x + 10}px` } : { left: `${x + 10}px` };
  return (
    <div class="chart-tip" style={side}>
      <strong>
        {clock(bar.from, false)}–{clock(bar.to, false)}
      </strong>
      {bar.values === null ? (
        <span class="muted">not counted</span>
      ) : (
        bar.values.map(
          (value, which) =>
            (value > 0 || bar.values?.length === 1) && (
              <span key={which} class="row">
                <Key colour={series[which]?.colour ?? ""} />
                {series[which]?.name}
                <b class="push">
                  {value.toLocaleString("en")}
                  {bar.more === true ? "+" : ""}
                </b>
              </span>
            ),
        )
      )}
      {bar.values !== null && bar.values.length > 1 && bar.values.every((value) => value === 0) && (
        <span class="muted">none</span>
      )}
    </div>
  );
}

export function Key({ colour }: { colour: string }): JSX.Element {
  return <span class="chart-key" style={{ background: colour }} />;
}

function Table({ label, series, bars }: { label: string; series: readonly Series[]; bars: readonly Bar[] }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="chart-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {isOpen && (
        <div class="chart-scroll" tabIndex={0} role="region" aria-label={`${label}, as a table`}>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">From</th>
                {series.map(({ name }) => (
                  <th key={name} scope="col" class="num">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {bars.map((bar) => (
                <tr key={bar.from}>
                  <td>
                    <Time ms={bar.from} form="clock" />
                  </td>
                  {series.map(({ name }, which) => (
                    <td key={name} class="num">
                      {bar.values === null ? "not counted" : (bar.values[which] ?? 0).toLocaleString("en")}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
