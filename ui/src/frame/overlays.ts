// Which of the frame's own dialogs is open.
import { signal } from "@preact/signals";

export const overlay = signal<"palette" | "help" | null>(null);

export function openPalette(): void {
  overlay.value = "palette";
}
export function showHelp(): void {
  overlay.value = "help";
}
export function closeOverlay(): void {
  overlay.value = null;
}
