// From times to places on the axis. Long idle times can be folded: the axis is then made of straight pieces, and the idle ones
// are drawn short. Places are numbers from 0 to `length`; a view is a part of them.

export interface Fold {
  fromMs: number;
  toMs: number;
  from: number;
  to: number;
}

export interface Scale {
  readonly startMs: number;
  readonly endMs: number;
  readonly length: number;
  readonly folds: readonly Fold[];
  place(ms: number): number;
  time(place: number): number;
}

/** At most so many idle times are folded, the longest. */
const MAX_FOLDS = 12;
/** An idle time is folded if it takes more than this part of what is not folded yet. */
const DOMINATES = 0.45;
/** How much of the axis each folded time keeps. */
const FOLD_SHARE = 0.035;

/** `points` are the times at which something happens. */
export function makeScale(startMs: number, endMs: number, points: readonly number[], isFolding: boolean): Scale {
  const end = Math.max(endMs, startMs + 1);
  const gaps = isFolding ? idleTimes(startMs, end, points) : [];
  const open = gaps.reduce((sum, gap) => sum - (gap.toMs - gap.fromMs), end - startMs);
  const width = gaps.length === 0 ? 0 : (Math.max(open, 1) * FOLD_SHARE) / (1 - Math.min(0.6, gaps.length * FOLD_SHARE));
  const folds: Fold[] = [];
  let removed = 0;
  for (const gap of gaps) {
    const from = gap.fromMs - startMs - removed;
    folds.push({ ...gap, from, to: from + width });
    removed += gap.toMs - gap.fromMs - width;
  }
  const place = (ms: number) => {
    let cut = 0;
    for (const fold of folds) {
      if (ms <= fold.fromMs) break;
      if (ms < fold.toMs) return fold.from + ((ms - fold.fromMs) / (fold.toMs - fold.fromMs)) * width;
      cut += fold.toMs - fold.fromMs - width;
    }
    return ms - startMs - cut;
  };
  const time = (at: number) => {
    let cut = 0;
    for (const fold of folds) {
      if (at <= fold.from) break;
      if (at < fold.to) return fold.fromMs + ((at - fold.from) / width) * (fold.toMs - fold.fromMs);
      cut += fold.toMs - fold.fromMs - width;
    }
    return startMs + at + cut;
  };
  return { startMs, endMs: end, length: place(end), folds, place, time };
}

function idleTimes(startMs: number, endMs: number, points: readonly number[]): { fromMs: number; toMs: number }[] {
  const within = points.filter((point) => point > startMs && point < endMs);
  const sorted = [...new Set([startMs, ...within, endMs])].sort((a, b) => a - b);
  const gaps = sorted.slice(1).map((toMs, index) => ({ fromMs: sorted[index] as number, toMs }));
  gaps.sort((a, b) => b.toMs - b.fromMs - (a.toMs - a.fromMs));
  const chosen: { fromMs: number; toMs: number }[] = [];
  let left = endMs - startMs;
  for (const gap of gaps) {
    const length = gap.toMs - gap.fromMs;
    // What is folded must be worth a mark on the axis, and something must remain.
    if (chosen.length >= MAX_FOLDS || length < left * DOMINATES || length < 50 || left - length < 1) break;
    left -= length;
    // A little of the idle time stays on both sides, so that what ends or begins there is seen to.
    const rest = Math.min(length * 0.1, left * 0.03);
    chosen.push({ fromMs: gap.fromMs + rest, toMs: gap.toMs - rest });
    left += 2 * rest;
  }
  return chosen.sort((a, b) => a.fromMs - b.fromMs);
}

/** A part of the axis, in places. */
export interface View {
  from: number;
  to: number;
}

/** The shortest time that a view can show. */
const MIN_VIEW = 2;

export function clampView(view: View, length: number): View {
  const width = Math.min(Math.max(view.to - view.from, MIN_VIEW), Math.max(length, MIN_VIEW));
  const from = Math.min(Math.max(view.from, 0), Math.max(0, length - width));
  return { from, to: from + width };
}

/** Makes the view `factor` times as wide; what stands at `at` (0 to 1) stays there. */
export function zoomed(view: View, factor: number, at: number, length: number): View {
  const width = Math.min(Math.max((view.to - view.from) * factor, MIN_VIEW), Math.max(length, MIN_VIEW));
  const pinned = view.from + at * (view.to - view.from);
  return clampView({ from: pinned - at * width, to: pinned + (1 - at) * width }, length);
}

export interface Tick {
  /** 0 to 1 within the view. */
  at: number;
  ms: number;
}

const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5,
  432e5, 864e5, 1728e5, 6048e5, 12096e5, 2592e6, 7776e6, 31536e6,
];

/** Round times that stand at least `everyPx` apart, within each straight piece of the axis. */
export function ticksOf(scale: Scale, view: View, widthPx: number, everyPx: number, originMs: number): Tick[] {
  const perPlace = widthPx / (view.to - view.from);
  const step = STEPS.find((each) => each * perPlace >= everyPx) ?? (STEPS.at(-1) as number);
  const ticks: Tick[] = [];
  const cuts = scale.folds.filter((fold) => fold.to > view.from && fold.from < view.to);
  let from = view.from;
  for (const end of [...cuts.map((fold) => fold.from), view.to]) {
    const last = scale.time(end);
    let ms = originMs + Math.ceil((scale.time(from) - originMs) / step) * step;
    while (ms <= last && ticks.length < 40) {
      const at = (scale.place(ms) - view.from) / (view.to - view.from);
      if (at >= 0 && at <= 1) ticks.push({ at, ms });
      ms += step;
    }
    from = cuts.find((fold) => fold.from === end)?.to ?? end;
  }
  return ticks;
}
