// The top of a chart's axis.

/** The next 1, 2 or 5 times a power of ten, at least 2. */
export function niceTop(most: number): number {
  if (most <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= most) ?? 10 * power;
}
