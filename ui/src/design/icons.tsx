// Small drawings, all on a grid of 16 and in the colour of the text around them. They are decoration: words stand beside them.
import type { ComponentChildren, JSX } from "preact";

const PATHS = {
  check: "M3.5 8.5l3 3 6-6.5",
  close: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  chevronRight: "M6.5 4l4 4-4 4",
  chevronDown: "M4 6.5l4 4 4-4",
  chevronLeft: "M9.5 4l-4 4 4 4",
  plus: "M8 3.5v9M3.5 8h9",
  copy:
    "M6 5.5h6.5a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1H6.5a1 1 0 0 1-1-1V6a.5.5 0 0 1 .5-.5z" +
    "M10.5 3.5v-.5a.5.5 0 0 0-.5-.5H3.5a1 1 0 0 0-1 1V10a.5.5 0 0 0 .5.5h.5",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5l3 3",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  filter: "M2.5 4.5h11M4.5 8h7M6.5 11.5h3",
  sliders: "M2.5 5h6M12.5 5h1M2.5 11h1M7.5 11h6M10.5 3.2v3.6M5.5 9.2v3.6",
  sun:
    "M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z" +
    "M8 2v1M8 13v1M2 8h1M13 8h1M3.8 3.8l.7.7M11.5 11.5l.7.7M3.8 12.2l.7-.7M11.5 4.5l.7-.7",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.2l2 1.300",
  user: "M8 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3.5 13.5c.4-2.600 2.2-4 4.5-4s4.100 1.400 4.5 4",
  freeze: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5.5 3.5l7 4.5-7 4.5z",
  bolt: "M9 2L4 9h4l-1 5 5-7H8z",
  branch: "M5 3v10M5 8h4a2 2 0 0 0 2-2V3",
  edit: "M3.5 12.5l.5-2.500 6.5-6.500 2 2-6.500 6.500z",
  send: "M3 8h9M8.5 4.5L12 8l-3.5 3.500",
  past: "M3 8a5 5 0 1 0 1.6-3.700L3 5.700M3 3v2.700h2.7M8 5.500V8l1.7 1.200",
  fold: "M5 3.5L8 6.500l3-3M5 12.500L8 9.500l3 3M2.500 8h2M7 8h2M11.500 8h2",
  columns: "M3 3.5h10v9H3zM6.5 3.5v9M9.5 3.5v9",
  external: "M9 3.5h3.5V7M12.5 3.5l-5 5M6.5 4.5h-3v8h8v-3",
  warning: "M8 2.8l6 10.7H2zM8 7v3M8 11.900h.01",
  overview: "M3 12.5v-4M6.5 12.5v-7M10 12.5v-5M13.5 12.5v-9",
  instances: "M3 4.5h10M3 8h10M3 11.5h10",
  blocked: "M5.5 2.5h5l3 3v5l-3 3h-5l-3-3v-5zM8 5.5v3M8 10.600h.01",
  activities: "M2.5 8h2.5l2-4.5 2.5 9 2-4.5h2",
  operations: "M3 4.5h7M3 8h4M3 11.5h3M9 11l1.5 1.5 3-3.5",
  nodes: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01",
  deploy: "M8 2.5l5 2.8v5.400l-5 2.8-5-2.8V5.300zM3 5.300l5 2.8 5-2.8M8 8.100v5.400",
  link: "M6.5 9.5l3-3M7 4.5l1.5-1.5a2.5 2.5 0 0 1 3.600 3.600L10.5 8M9 11.5l-1.5 1.5a2.5 2.5 0 0 1-3.600-3.600L5.5 8",
  download: "M8 2.5v7.5M5 7.2l3 3 3-3M3 13h10",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }): JSX.Element {
  return (
    <Drawing size={size}>
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" />
    </Drawing>
  );
}

export function Drawing({ size = 16, children }: { size?: number; children: ComponentChildren }): JSX.Element {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      {children}
    </svg>
  );
}
