// Dialogs are the browser's own: focus is kept inside and returns to where it was, and Escape closes.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

import { Icon } from "./icons.tsx";

/** Shown as long as it is rendered; `onClose` must stop rendering it. */
export function Dialog(props: {
  title: ComponentChildren;
  onClose: () => void;
  children: ComponentChildren;
  footer?: ComponentChildren;
  isWide?: boolean;
  class?: string;
  /** Called when the form of the dialog is submitted. */
  onSubmit?: () => void;
}): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    if (dialog !== null && !dialog.open) dialog.showModal();
    // The browser would begin at the button that closes it.
    dialog?.querySelector<HTMLElement>("[autofocus], form :is(input, select, textarea)")?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={`dialog ${props.isWide === true ? "wide" : ""} ${props.class ?? ""}`}
      aria-labelledby={title}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === box.current) props.onClose();
      }}
    >
      <header>
        <h2 id={title}>{props.title}</h2>
        <button type="button" class="button quiet icon" aria-label="Close" onClick={props.onClose}>
          <Icon name="close" />
        </button>
      </header>
      <form
        class="body"
        id={`${title}-form`}
        onSubmit={(event) => {
          event.preventDefault();
          props.onSubmit?.();
        }}
      >
        {props.children}
        {/* Lets Enter submit although the buttons stand in the footer. */}
        <button type="submit" hidden />
      </form>
      {props.footer !== undefined && <footer>{props.footer}</footer>}
    </dialog>
  );
}
