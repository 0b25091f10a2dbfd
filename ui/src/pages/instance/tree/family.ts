// The family of an instance, read level by level as it is unfolded. Counts of folded parents come from the server's indexes.
import { batch, signal, type Signal } from "@preact/signals";

import { get } from "../../../api/client.ts";
import { Loaded } from "../../../api/load.ts";
import { Problem } from "../../../api/problem.ts";
import type { Instance, Tree } from "../../../api/types.ts";
import { read } from "../data.ts";

const PAGE = 500;
/** How many requests for counts run at a time. */
const COUNTING = 3;

export interface Counts {
  total: number;
  failed: number;
  running: number;
  blocked: number;
  isMore: boolean;
}

export class Member {
  readonly instance: Signal<Instance>;
  readonly depth: number;
  readonly children: Signal<readonly Member[] | null> = signal(null);
  /** Whether there are children that were not read. */
  readonly hasMore: Signal<boolean> = signal(false);
  readonly isUnfolded: Signal<boolean> = signal(false);
  readonly isLoading: Signal<boolean> = signal(false);
  readonly problem: Signal<Problem | null> = signal(null);
  readonly counts: Signal<Counts | null> = signal(null);
  cursor: string | null = null;
  /** Whether the children came from the tree, whose pages have no cursor. */
  isFromTree = false;

  constructor(instance: Instance, depth: number) {
    this.instance = signal(instance);
    this.depth = depth;
  }

  get id(): string {
    return this.instance.value.id;
  }

  /** Whether it is known to have children. */
  get hasChildren(): boolean {
    const known = this.children.value;
    return (known !== null && known.length > 0) || this.hasMore.value || (this.counts.value?.total ?? 0) > 0;
  }
}

/** Which children are shown. */
export type Only = "all" | "failed" | "running" | "blocked";

export class Family {
  readonly id: string;
  readonly loaded: Loaded<Member>;
  readonly only: Only;
  private waiting: Member[] = [];
  private counting = 0;
  private readonly counted = new Set<Member>();

  constructor(id: string, bound: object, only: Only) {
    this.id = id;
    this.only = only;
    this.loaded = new Loaded(async (abort) => {
      const tree = await read<Tree>("instances/{id}/tree", [id], { ...bound, root: true, depth: 3 }, abort);
      this.counted.clear();
      return this.grow(tree, 0, this.loaded.value.peek() ?? null);
    });
  }

  /** Makes members of a tree. What was unfolded before stays so. */
  private grow(tree: Tree, depth: number, before: Member | null): Member {
    const member = before !== null && before.instance.peek().key === tree.key ? before : new Member(tree, depth);
    const isFirst = member !== before;
    const old = new Map((member.children.peek() ?? []).map((child) => [child.instance.peek().key, child]));
    batch(() => {
      member.instance.value = tree;
      if (this.only !== "all" && depth > 0) return;
      const isPaged = member.cursor !== null || (!member.isFromTree && member.children.peek() !== null);
      if (!isPaged && (tree.children.length > 0 || !tree.more_children)) {
        member.children.value = tree.children.map((child) => this.grow(child, depth + 1, old.get(child.key) ?? null));
        member.hasMore.value = tree.more_children;
        member.isFromTree = true;
      } else if (!isPaged) {
        member.hasMore.value = tree.more_children;
      }
      // Small families are shown as a whole.
      if (isFirst) member.isUnfolded.value = depth === 0 || isAbove(tree, this.id) || (depth < 3 && tree.children.length <= 12);
    });
    return member;
  }

  /** Reads the next children of a member. */
  async loadMore(member: Member): Promise<void> {
    if (member.isLoading.peek()) return;
    member.isLoading.value = true;
    try {
      const page = await this.page(member);
      const isFirst = member.isFromTree || member.children.peek() === null;
      const fresh = page.rows.map((row) => new Member(row, member.depth + 1));
      batch(() => {
        const old = new Map((member.children.peek() ?? []).map((child) => [child.instance.peek().key, child]));
        const kept = fresh.map((child) => old.get(child.instance.peek().key) ?? child);
        member.children.value = isFirst ? kept : [...(member.children.peek() ?? []), ...fresh];
        member.isFromTree = false;
        member.cursor = page.next;
        member.hasMore.value = page.next !== null;
        member.problem.value = null;
      });
    } catch (error) {
      member.problem.value = Problem.from(error);
    } finally {
      member.isLoading.value = false;
    }
  }

  private async page(member: Member): Promise<{ rows: Instance[]; next: string | null }> {
    const cursor = member.isFromTree ? null : member.cursor;
    if (this.only === "all") return await read("instances/{id}/children", [member.id], { limit: PAGE, cursor });
    const narrow = this.only === "blocked" ? { blocked: true } : { status: this.only };
    return await get("instances", {
      query: { parent: member.instance.peek().key, ...narrow, limit: PAGE, ...(cursor === null ? {} : { cursor }) },
    });
  }

  async toggle(member: Member): Promise<void> {
    member.isUnfolded.value = !member.isUnfolded.peek();
    const isUnread = member.children.peek() === null || (member.children.peek()?.length === 0 && member.hasMore.peek());
    if (member.isUnfolded.peek() && isUnread) await this.loadMore(member);
  }

  /** Counts the children of a member that has come into view, once for each time that the family is read. */
  count(member: Member): void {
    if (this.counted.has(member)) return;
    this.counted.add(member);
    this.waiting.push(member);
    this.countNext();
  }

  private countNext(): void {
    if (this.counting >= COUNTING) return;
    const member = this.waiting.shift();
    if (member === undefined) return;
    this.counting += 1;
    void this.readCounts(member).finally(() => {
      this.counting -= 1;
      this.countNext();
    });
  }

  private async readCounts(member: Member): Promise<void> {
    try {
      const { groups, others } = await get("groups", { query: { by: "status", parent: member.instance.peek().key } });
      const of = (status: string) => groups.find((group) => group.value === status)?.count ?? 0;
      const total = groups.reduce((sum, group) => sum + group.count, others);
      const blocked =
        of("running") === 0
          ? { rows: 0, more: false }
          : await get("count", { query: { parent: member.instance.peek().key, blocked: true } });
      member.counts.value = { total, failed: of("failed"), running: of("running"), blocked: blocked.rows, isMore: false };
    } catch {
      // The tree is shown without the count.
      member.counts.value = {
        total: member.children.peek()?.length ?? 0,
        failed: 0,
        running: 0,
        blocked: 0,
        isMore: member.hasMore.peek(),
      };
    }
  }
}

/** Whether an instance stands above the one of the page, whose id begins with those above it. */
function isAbove(tree: Tree, id: string): boolean {
  return tree.children.some((child) => child.id === id || isAbove(child, id));
}

export type FamilyRow = { is: "member"; member: Member } | { is: "more"; of: Member };

export function familyRows(root: Member): FamilyRow[] {
  const rows: FamilyRow[] = [];
  const visit = (member: Member) => {
    rows.push({ is: "member", member });
    if (!member.isUnfolded.value) return;
    for (const child of member.children.value ?? []) visit(child);
    if (member.hasMore.value || member.isLoading.value || member.problem.value !== null) rows.push({ is: "more", of: member });
  };
  visit(root);
  return rows;
}
