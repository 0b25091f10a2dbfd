// A button that opens a list of things to choose from, in a popover of the browser.
import type { ComponentChildren, JSX } from "preact";
import { useId, useRef, useState } from "preact/hooks";

/** `children` is called while the menu is open; call its argument to close the menu. */
export function Menu(props: {
  button: ComponentChildren;
  buttonClass?: string;
  /** Names the menu, and the button if it shows no words. */
  label: string;
  hasWords?: boolean;
  children: (close: () => void) => ComponentChildren;
  class?: string;
  /** For menus that are forms and not lists of items. */
  role?: "menu" | "dialog";
}): JSX.Element {
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  const [button, menu] = [useRef<HTMLButtonElement>(null), useRef<HTMLDivElement>(null)];
  const role = props.role ?? "menu";
  const close = () => menu.current?.hidePopover();
  const toggled = (event: ToggleEvent) => {
    const opens = event.newState === "open";
    setOpen(opens);
    if (opens)
      requestAnimationFrame(() => {
        place(button.current, menu.current);
        menu.current?.querySelector<HTMLElement>("[autofocus], .menu-item, input, button")?.focus();
      });
    else if (menu.current?.contains(document.activeElement) === true) button.current?.focus();
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class={props.buttonClass ?? "button"}
        popoverTarget={id}
        aria-haspopup={role}
        aria-expanded={isOpen}
        aria-label={props.hasWords === true ? undefined : props.label}
        title={props.label}
      >
        {props.button}
      </button>
      <div
        ref={menu}
        id={id}
        popover="auto"
        class={`menu ${props.class ?? ""}`}
        role={isOpen ? role : undefined}
        aria-label={props.label}
        onToggle={toggled}
        onKeyDown={(event) => step(event, menu.current)}
      >
        {isOpen && props.children(close)}
      </div>
    </>
  );
}

function place(button: HTMLElement | null, menu: HTMLElement | null): void {
  if (button === null || menu === null) return;
  const at = button.getBoundingClientRect();
  const size = menu.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - size.width - 8));
  const fitsBelow = at.bottom + 4 + size.height <= innerHeight - 8;
  const top = fitsBelow ? at.bottom + 4 : Math.max(8, at.top - 4 - size.height);
  menu.style.left = `${left}px`;
  menu.style.top = `${top}px`;
}

function step(event: KeyboardEvent, menu: HTMLElement | null): void {
  if (menu === null || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return;
  const items = [...menu.querySelectorAll<HTMLElement>(".menu-item")];
  const at = items.indexOf(document.activeElement as HTMLElement);
  const next = event.key === "ArrowDown" ? (at + 1) % items.length : (at - 1 + items.length) % items.length;
  event.preventDefault();
  items[next]?.focus();
}

export function MenuItem(props: {
  children: ComponentChildren;
  onClick?: () => void;
  href?: string;
  isDanger?: boolean;
  whyNot?: string | null;
  isChecked?: boolean;
}): JSX.Element {
  const kind = `menu-item ${props.isDanger === true ? "danger" : ""}`;
  const role = props.isChecked === undefined ? "menuitem" : "menuitemcheckbox";
  if (props.href !== undefined && (props.whyNot ?? null) === null) {
    return (
      <a role={role} class={kind} href={props.href} onClick={props.onClick}>
        {props.children}
      </a>
    );
  }
  const isOff = props.whyNot !== null && props.whyNot !== undefined;
  return (
    <button
      type="button"
      role={role}
      class={kind}
      aria-checked={props.isChecked}
      aria-disabled={isOff ? "true" : undefined}
      title={props.whyNot ?? undefined}
      onClick={() => {
        if (!isOff) props.onClick?.();
      }}
    >
      {props.children}
      {isOff && <span class="push">{props.whyNot}</span>}
    </button>
  );
}
