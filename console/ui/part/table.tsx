// A table of a list: rows of one height, only those in sight are in the document, and more are read while scrolling.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { List } from "../api/list";
import { ErrorBox, Skeleton } from "./feedback";
import { clock, moment, plural, zoneName } from "./format";
import { useWidth } from "./width";

export type Column<T> = {
  head: string;
  cell: (row: T) => ComponentChildren;
  /** The width in pixels, or a share of what is left ("1fr"). */
  width: number | `${number}fr`;
  number?: boolean;
  /** The heading is for screen readers alone. */
  quiet?: boolean;
};

type Props<T> = {
  list: List<T>;
  label: string;
  columns: Column<T>[];
  rowKey: (row: T) => string;
  /** Shown in place of an empty list. */
  empty: ComponentChildren;
  /** The least width in pixels before the table scrolls sideways. */
  least?: number;
};

const OVERSCAN = 12;

export function rowHeight(): number {
  return Number.parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 36;
}

/** Returns the first and last index of `count` rows that lie between the window's edges, and some around them. */
export function inSight(count: number, height: number, top: number, view: number): [number, number] {
  const from = Math.max(0, Math.floor(-top / height) - OVERSCAN);
  const to = Math.min(count, Math.ceil((view - top) / height) + OVERSCAN);
  return [Math.min(from, Math.max(0, count - 1)), Math.max(0, to)];
}

export function Table<T>({ list, label, columns, rowKey, empty, least = 640 }: Props<T>) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [wrap, wide] = useWidth();
  const count = list.count;
  const [[from, to], setRange] = useState<[number, number]>([0, 60]);
  const height = rowHeight();
  useLayoutEffect(() => {
    let frame = 0;
    const look = (): void => {
      frame = 0;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const [a, b] = inSight(list.count, height, top, window.innerHeight);
      setRange((old) => (old[0] === a && old[1] === b ? old : [a, b]));
    };
    const later = (): void => {
      frame ||= requestAnimationFrame(look);
    };
    look();
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
    };
  }, [list, count, height]);
  useEffect(() => {
    void list.see(from, to);
    if (to >= count - 20 && list.next.value && !list.error.value && !list.stoppedAt.value && list.isRead) void list.more();
  }, [list, from, to, count]);

  if (!list.isRead) return list.error.value ? <ErrorBox error={list.error.value} retry={() => list.load()} /> : <Skeleton rows={8} />;
  if (count === 0 && !list.next.value && !list.error.value) return <>{empty}</>;
  const rows = [];
  for (let i = from; i < Math.min(to, count); i += 1) {
    const row = list.row(i);
    rows.push(<Row key={row ? rowKey(row) : i} row={row} columns={columns} index={i} />);
  }
  const shares = columns.reduce((sum, { width }) => sum + (typeof width === "number" ? 0 : Number.parseFloat(width)), 0) || 1;
  const fixed = columns.reduce((sum, { width }) => sum + (typeof width === "number" ? width : 0), 0);
  // Shares are in pixels: a table takes no width that is calculated from a percentage.
  const left = Math.max(wide, least) - fixed;
  const widthOf = (width: Column<T>["width"]): string => {
    if (typeof width === "number") return `${width}px`;
    return wide ? `${Math.floor((left * Number.parseFloat(width)) / shares)}px` : "auto";
  };
  const last = Math.min(to, count);
  return (
    <>
      {list.error.value && (
        <ErrorBox error={list.error.value} retry={() => (list.next.value ? list.more() : list.load())} since={list.readAt.value} />
      )}
      <div class={list.error.value ? "table-wrap stale" : "table-wrap"} ref={wrap} role="group" aria-label={label} tabIndex={0}>
        <table class="table fixed" aria-rowcount={list.next.value ? -1 : count + 1} style={{ minWidth: `${least}px` }}>
          <colgroup>
            {columns.map((column) => (
              <col key={column.head} style={{ width: widthOf(column.width) }} />
            ))}
          </colgroup>
          <thead>
            <tr aria-rowindex={1}>
              {columns.map((column) => (
                <th key={column.head} scope="col" class={column.number ? "num" : undefined}>
                  {column.quiet ? <span class="sr">{column.head}</span> : column.head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody ref={body}>
            {from > 0 && <Gap height={from * height} />}
            {rows}
            {count > last && <Gap height={(count - last) * height} />}
          </tbody>
        </table>
      </div>
      <Foot list={list} />
    </>
  );
}

type RowProps<T> = { row: T | undefined; columns: Column<T>[]; index: number };

/** A row is drawn again only when it has changed: while a table scrolls, most of those in sight have not. */
class Row<T> extends Component<RowProps<T>> {
  shouldComponentUpdate(next: RowProps<T>): boolean {
    return next.row !== this.props.row || next.columns !== this.props.columns || next.index !== this.props.index;
  }

  render({ row, columns, index }: RowProps<T>) {
    return (
      <tr aria-rowindex={index + 2}>
        {columns.map((column) => (
          <td key={column.head} class={column.number ? "num" : undefined}>
            {row ? column.cell(row) : <span class="ghost" />}
          </td>
        ))}
      </tr>
    );
  }
}

/** Keeps the place of rows that are not in the document. */
function Gap({ height }: { height: number }) {
  return (
    <tr aria-hidden="true" class="gap">
      <td style={{ height: `${height}px` }} />
    </tr>
  );
}

/** Says how far the list was read. */
function Foot<T>({ list }: { list: List<T> }) {
  const stopped = list.stoppedAt.value;
  if (stopped !== null) {
    const at = Number.parseInt(stopped, 10);
    return (
      <div class="table-foot" role="status">
        <span>Searched back to {moment(at)}.</span>
        <button type="button" class="btn small" onClick={() => list.more()}>
          Go on
        </button>
      </div>
    );
  }
  return (
    <div class="table-foot">
      <span>
        {list.next.value ? `${plural(list.count, "row")} so far` : plural(list.count, "row")} · read {clock(list.readAt.value, "second")}{" "}
        {zoneName()}
      </span>
      {list.busy.value && <span>Reading…</span>}
    </div>
  );
}
