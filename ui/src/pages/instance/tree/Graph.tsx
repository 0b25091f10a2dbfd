// The family as a drawing: parents at the left, children at their right. What is folded stays folded; a level of many children
// shows the first of them.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { Id, Text } from "../../../design/Id.tsx";
import { Status, standingOf } from "../../../design/Status.tsx";
import { countText } from "../../../design/Controls.tsx";
import { href } from "../../../router/router.ts";
import type { Family, Member } from "./family.ts";

const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [220, 44, 56, 12];
const MAX_BOXES = 220;
const MAX_SIBLINGS = 25;

interface Box {
  member: Member;
  x: number;
  y: number;
  parent: Box | null;
  /** Children that are not drawn. */
  hidden: number;
}

function layOut(root: Member): { boxes: Box[]; height: number; width: number } {
  const boxes: Box[] = [];
  let nextY = 0;
  const visit = (member: Member, parent: Box | null): Box => {
    const box: Box = { member, x: member.depth * (WIDTH + GAP_X), y: 0, parent, hidden: 0 };
    boxes.push(box);
    const all = member.isUnfolded.value ? (member.children.value ?? []) : [];
    // What is in trouble is drawn first.
    const order = [...all].sort((a, b) => trouble(b) - trouble(a)).slice(0, MAX_SIBLINGS);
    const shown = boxes.length >= MAX_BOXES ? [] : order;
    const drawn = shown.flatMap((child) => (boxes.length >= MAX_BOXES ? [] : [visit(child, box)]));
    box.hidden = Math.max(0, (member.counts.value?.total ?? all.length) - drawn.length);
    const [first, last] = [drawn[0], drawn.at(-1)];
    if (first !== undefined && last !== undefined) box.y = (first.y + last.y) / 2;
    else {
      box.y = nextY;
      nextY += HEIGHT + GAP_Y;
    }
    return box;
  };
  visit(root, null);
  return { boxes, height: nextY, width: Math.max(...boxes.map((box) => box.x)) + WIDTH };
}

function trouble(member: Member): number {
  const standing = standingOf(member.instance.value);
  return standing === "failed" ? 3 : standing === "blocked" ? 2 : standing === "running" ? 1 : 0;
}

export function Graph({ family, root, id }: { family: Family; root: Member; id: string }): JSX.Element {
  const { boxes, height, width } = layOut(root);
  const view = useRef<HTMLDivElement>(null);
  useEffect(() => view.current?.querySelector(".here")?.scrollIntoView({ block: "center", inline: "center" }), []);
  return (
    <div class="tr-graph" ref={view} tabIndex={0} role="group" aria-label="The family as a graph">
      <div class="tr-canvas" style={{ width: `${width + 160}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {boxes.map(
            (box) =>
              box.parent !== null && (
                <path
                  key={box.member.instance.value.key}
                  class={standingOf(box.member.instance.value)}
                  d={curve(box.parent.x + WIDTH, box.parent.y + HEIGHT / 2, box.x, box.y + HEIGHT / 2)}
                />
              ),
          )}
        </svg>
        {boxes.map(({ member, x, y, hidden }) => {
          const instance = member.instance.value;
          return (
            <div
              key={instance.key}
              class={`tr-box ${standingOf(instance)} ${instance.id === id ? "here" : ""}`}
              style={{ transform: `translate(${x}px, ${y}px)` }}
            >
              <span class="row">
                <Status is={standingOf(instance)} isBare />
                <Id text={tail(instance.id, member.depth)} href={href(["instances", instance.id], { tab: "tree" })} isClipped />
              </span>
              <span class="row">
                <span class="muted clip">
                  <Text text={instance.name} />
                </span>
                {(member.hasChildren || hidden > 0) && (
                  <button
                    type="button"
                    class="tr-fold"
                    aria-expanded={member.isUnfolded.value}
                    aria-label={`Children of ${instance.id}`}
                    onClick={() => void family.toggle(member)}
                  >
                    {member.isUnfolded.value
                      ? hidden > 0
                        ? `${countText(hidden)} more`
                        : "–"
                      : countText(member.counts.value?.total ?? member.children.value?.length ?? 0)}
                  </button>
                )}
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

/** A child's id begins with its parent's, so its end tells more. */
function tail(id: string, depth: number): string {
  const at = id.lastIndexOf("::");
  return depth > 0 && at > 0 ? `…${id.slice(at)}` : id;
}

function curve(fromX: number, fromY: number, toX: number, toY: number): string {
  const middle = (fromX + toX) / 2;
  return `M${fromX} ${fromY}C${middle} ${fromY} ${middle} ${toY} ${toX} ${toY}`;
}
