// The mark of the product, drawn by the page: the store's texts never make an image, so a page has none.
import type { JSX } from "preact";

export function Mark({ size = 20 }: { size?: number }): JSX.Element {
  return (
    <svg class="mark" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" fill="#17594a" />
      <path d="M16 26V13" stroke="#fff" stroke-width="2.6" stroke-linecap="round" />
      <path d="M16 18c0-5-3.2-7.6-8-7.8 0 5 3 7.8 8 7.8z" fill="#9fe0c4" />
      <path d="M16 14.5c0-5 3.2-8 8-8.3 0 5.2-3 8.3-8 8.3z" fill="#fff" />
    </svg>
  );
}
