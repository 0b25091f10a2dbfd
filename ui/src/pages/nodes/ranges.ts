// Numbers of shards in short.

/** `0–63, 128–191` */
export function rangesText(numbers: readonly number[]): string {
  const parts: string[] = [];
  for (let from = 0; from < numbers.length;) {
    let to = from;
    while (numbers[to + 1] === (numbers[to] ?? 0) + 1) to++;
    parts.push(from === to ? String(numbers[from]) : `${numbers[from]}–${numbers[to]}`);
    from = to + 1;
  }
  return parts.join(", ");
}
