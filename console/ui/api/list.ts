// A list of the admin API, read page by page. Far pages are dropped from memory and read again when they come into sight.
import { type Signal, signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { call } from "./client";
import { type Cached, kept, useCached } from "./resource";

type Page<T> = { cursor: string | null; count: number; rows: T[] | null };
type Answered<T> = { data: T[]; next_cursor: string | null };

export class List<T> implements Cached {
  readonly pages: Signal<Page<T>[]> = signal([]);
  readonly error: Signal<Error | null> = signal(null);
  readonly busy: Signal<boolean> = signal(false);
  readonly readAt: Signal<number> = signal(0);
  /** The cursor at which a search stopped for lack of time without finding anything. */
  readonly stoppedAt: Signal<string | null> = signal(null);
  /** The cursor of the next page; null at the end of the list. */
  readonly next: Signal<string | null> = signal(null);
  /** The first page's answer as it came, for members beside its rows. */
  readonly first: Signal<unknown> = signal(null);
  shown = 0;
  private generation = 0;

  constructor(
    readonly path: string,
    private readonly query: Record<string, string>,
  ) {}

  get count(): number {
    return this.pages.value.reduce((sum, page) => sum + page.count, 0);
  }

  /** The path of the list with its filters, and `more`. */
  pathOf(more: Record<string, string>): string {
    return `${this.path}?${new URLSearchParams({ ...this.query, ...more })}`;
  }

  /** True once the first page is there. */
  get isRead(): boolean {
    return this.readAt.value > 0;
  }

  row(index: number): T | undefined {
    let before = 0;
    for (const page of this.pages.value) {
      if (index < before + page.count) return page.rows?.[index - before];
      before += page.count;
    }
    return undefined;
  }

  /** Reads the list from its beginning. What was there stays until the answer has come. */
  async load(): Promise<void> {
    this.generation += 1;
    this.stoppedAt.value = null;
    await this.read(null, (answer) => {
      this.first.value = answer;
      this.pages.value = [{ cursor: null, count: answer.data.length, rows: answer.data }];
    });
    if (this.count === 0 && this.next.value && !this.error.value) await this.more();
  }

  /** Reads the list, unless more than one page of it is in memory: a list that was scrolled stays as it was on return. */
  appear(): void {
    if (this.pages.value.length <= 1 || this.error.value) void this.load();
  }

  /** Reads the next page. A search that finds nothing in its time goes on by itself a few times. */
  async more(): Promise<void> {
    if (this.busy.value) return;
    this.stoppedAt.value = null;
    for (let tries = 0; this.next.value; tries += 1) {
      const cursor = this.next.value;
      if (tries === SEARCHES_MAX) {
        this.stoppedAt.value = cursor;
        return;
      }
      let found = 0;
      await this.read(cursor, ({ data }) => {
        found = data.length;
        if (found) this.pages.value = [...this.pages.value, { cursor, count: found, rows: data }];
      });
      if (found || this.error.value) return;
    }
  }

  private async read(cursor: string | null, take: (answer: Answered<T>) => void): Promise<void> {
    const generation = this.generation;
    this.busy.value = true;
    try {
      const { data } = await call<Answered<T>>("GET", this.pathOf({ limit: String(PAGE_ROWS), ...(cursor ? { cursor } : {}) }));
      if (generation !== this.generation) return;
      take(data);
      this.next.value = data.next_cursor;
      this.error.value = null;
      this.readAt.value = Date.now();
    } catch (error) {
      if (generation !== this.generation) return;
      this.error.value = error as Error;
    }
    this.busy.value = false;
  }

  /** Keeps the pages around the rows `from` to `to` in memory, and reads those that were dropped. */
  async see(from: number, to: number): Promise<void> {
    let before = 0;
    const middle = (from + to) / 2;
    const pages = this.pages.value.map((page, index) => {
      const start = before;
      before += page.count;
      return { page, index, start, distance: Math.abs(start + page.count / 2 - middle) };
    });
    const missing = pages.filter(({ page, start }) => !page.rows && start < to && start + page.count > from);
    for (const { page, index } of missing) await this.readAgain(page, index);
    const near = [...pages].sort((a, b) => a.distance - b.distance);
    let rows = 0;
    const far = new Set<number>();
    for (const { page, index } of near) {
      rows += page.count;
      if (rows > ROWS_MAX && this.pages.value[index]?.rows) far.add(index);
    }
    if (far.size) this.pages.value = this.pages.value.map((page, index) => (far.has(index) ? { ...page, rows: null } : page));
  }

  private async readAgain(page: Page<T>, index: number): Promise<void> {
    const generation = this.generation;
    const path = this.pathOf({ limit: String(page.count), ...(page.cursor ? { cursor: page.cursor } : {}) });
    const answer = await call<Answered<T>>("GET", path).catch(() => null);
    if (!answer || generation !== this.generation) return;
    this.pages.value = this.pages.value.map((old, at) => (at === index ? { ...old, rows: answer.data.data } : old));
  }
}

/** Returns the list at `path` with the filters of `query`; empty filters are left out. */
export function useList<T>(path: string, query: Record<string, string | null | undefined> = {}): List<T> {
  const given = Object.fromEntries(Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]));
  const key = `${path}?${new URLSearchParams(given)}`;
  const list = useMemo(() => kept(`list ${key}`, () => new List<T>(path, given)), [key]);
  useCached(list);
  return list;
}

const PAGE_ROWS = 100;
/** The rows of a list that are kept in memory. */
const ROWS_MAX = 2000;
/** How often a search that stopped for lack of time goes on by itself. */
const SEARCHES_MAX = 3;
