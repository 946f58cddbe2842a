// A table of a list: rows of one height, only those in sight are in the document, and more are read while scrolling. Columns for which
// there is no room stand in further lines of their row.
import { Component, type ComponentChildren, options } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { List } from "../api/list";
import { ErrorBox, Skeleton } from "./feedback";
import { type Foldable, foldedInto } from "./fold";
import { clock, moment, plural, zoneName } from "./format";
import { ariaSort, type Direction, Head, type Order, OrderSelect, OWN } from "./order";
import { useWidth } from "./width";

export type Column<T> = Foldable & {
  cell: (row: T) => ComponentChildren;
  number?: boolean;
  /** The column of the API by which the list is sorted. */
  sort?: string;
  /** The direction of the first press of the heading, if it is not the largest number or the first name. */
  from?: Direction;
  /** The heading is for screen readers alone. */
  quiet?: boolean;
};

export type TableProps<T> = {
  list: List<T>;
  label: string;
  columns: Column<T>[];
  rowKey: (row: T) => string;
  /** Shown in place of an empty list. */
  empty: ComponentChildren;
  /** The order of the list. */
  order?: Order;
  /** The order without one in the address. */
  usual?: Order;
};

const OVERSCAN = 12;
/** The height of a folded line, in pixels. */
const FOLD_LINE = 24;

export function rowHeight(): number {
  return Number.parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 36;
}

/** Returns the first and last index of `count` rows that lie between the window's edges, and some around them. */
export function inSight(count: number, height: number, top: number, view: number): [number, number] {
  const from = Math.max(0, Math.floor(-top / height) - OVERSCAN);
  const to = Math.min(count, Math.ceil((view - top) / height) + OVERSCAN);
  return [Math.min(from, Math.max(0, count - 1)), Math.max(0, to)];
}

export function Table<T>({ list, label, columns, rowKey, empty, order = OWN, usual = OWN }: TableProps<T>) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [wrap, wide] = useWidth();
  const count = list.count;
  const [[from, to], setRange] = useState<[number, number]>([0, 60]);
  const { first, below } = useMemo(() => foldedInto(columns, wide), [columns, wide]);
  const height = rowHeight() + below.length * FOLD_LINE;
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
    const whole = (): void => drawnAtOnce(() => setRange([0, list.count]));
    look();
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    addEventListener("beforeprint", whole);
    addEventListener("afterprint", look);
    return () => {
      removeEventListener("beforeprint", whole);
      removeEventListener("afterprint", look);
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
    rows.push(<Row key={row ? rowKey(row) : i} row={row} first={first} below={below} index={i} />);
  }
  const last = Math.min(to, count);
  return (
    <>
      {list.error.value && (
        <ErrorBox error={list.error.value} retry={() => (list.next.value ? list.more() : list.load())} since={list.readAt.value} />
      )}
      {hasFoldedOrder(below) && <OrderSelect columns={columns} order={order} usual={usual} />}
      <div class={list.error.value ? "table-place stale" : "table-place"} ref={wrap} role="group" aria-label={label}>
        <table class={below.length ? "table fixed folded" : "table fixed"} aria-rowcount={list.next.value ? -1 : count + 1}>
          <Columns first={first} wide={wide} order={order} usual={usual} />
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

/** Draws what `change` sets before it returns: a browser prints the document as it is when the event has been handled. */
function drawnAtOnce(change: () => void): void {
  const usual = options.debounceRendering;
  options.debounceRendering = (draw) => draw();
  change();
  options.debounceRendering = usual;
}

type RowsProps<T> = Pick<TableProps<T>, "label" | "columns" | "rowKey" | "order" | "usual"> & { rows: T[] };

/** A short table of rows that are all in the document. */
export function Rows<T>({ rows, label, columns, rowKey, order = OWN, usual = OWN }: RowsProps<T>) {
  const [wrap, wide] = useWidth();
  const { first, below } = useMemo(() => foldedInto(columns, wide), [columns, wide]);
  return (
    <>
      {hasFoldedOrder(below) && <OrderSelect columns={columns} order={order} usual={usual} />}
      <div class="table-place" ref={wrap} role="group" aria-label={label}>
        <table class={below.length ? "table fixed folded" : "table fixed"}>
          <Columns first={first} wide={wide} order={order} usual={usual} />
          <tbody>
            {rows.map((row, i) => (
              <Row key={rowKey(row)} row={row} first={first} below={withContent(below, row)} index={i} />
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** The lines that have content in this row. Only a table whose rows are all in the document may have rows of several heights. */
function withContent<T>(below: Column<T>[][], row: T): Column<T>[][] {
  const lines = below.filter((line) => line.some(({ cell }) => !isEmpty(cell(row))));
  return lines.length === below.length ? below : lines;
}

const isEmpty = (content: ComponentChildren): boolean => content == null || typeof content === "boolean" || content === "";

/** True if a heading that sorts has no place in the table. */
const hasFoldedOrder = <T,>(below: Column<T>[][]): boolean => below.flat().some(({ sort }) => sort);

type ColumnsProps<T> = { first: Column<T>[]; wide: number; order: Order; usual: Order };

/** The widths and the headings of the columns of the first line. */
function Columns<T>({ first, wide, order, usual }: ColumnsProps<T>) {
  const shares = first.reduce((sum, { width }) => sum + (typeof width === "number" ? 0 : Number.parseFloat(width)), 0) || 1;
  const fixed = first.reduce((sum, { width }) => sum + (typeof width === "number" ? width : 0), 0);
  // Shares are in pixels: a table takes no width that is calculated from a percentage.
  const left = Math.max(0, wide - fixed);
  // Where every share is folded, the other columns take its room: the table is as wide as its place.
  const stretch = fixed < wide && first.every(({ width }) => typeof width === "number") ? wide / fixed : 1;
  const widthOf = (width: Column<T>["width"]): string => {
    if (typeof width === "number") return `${Math.floor(width * stretch)}px`;
    return wide ? `${Math.floor((left * Number.parseFloat(width)) / shares)}px` : "auto";
  };
  return (
    <>
      <colgroup>
        {first.map((column) => (
          <col key={column.head} style={{ width: widthOf(column.width) }} />
        ))}
      </colgroup>
      <thead>
        <tr aria-rowindex={1}>
          {first.map((column) => (
            <th key={column.head} scope="col" class={column.number ? "num" : undefined} aria-sort={ariaSort(column, order)}>
              {column.quiet ? <span class="sr">{column.head}</span> : <Head of={column} order={order} usual={usual} />}
            </th>
          ))}
        </tr>
      </thead>
    </>
  );
}

type RowProps<T> = { row: T | undefined; first: Column<T>[]; below: Column<T>[][]; index: number };

/** A row is drawn again only when it has changed: while a table scrolls, most of those in sight have not. */
class Row<T> extends Component<RowProps<T>> {
  shouldComponentUpdate(next: RowProps<T>): boolean {
    const { row, first, below, index } = this.props;
    return next.row !== row || next.first !== first || next.below !== below || next.index !== index;
  }

  render({ row, first, below, index }: RowProps<T>) {
    return (
      <tr aria-rowindex={index + 2} style={below.length ? { height: `${rowHeight() + below.length * FOLD_LINE}px` } : undefined}>
        {first.map((column) => (
          <td key={column.head} class={column.number ? "num" : undefined}>
            {row ? column.cell(row) : <span class="ghost" />}
          </td>
        ))}
        {below.length > 0 && (
          <td class="folds">
            {below.map((line) => (
              <div key={line[0]?.head} class="fold-line">
                {line.map((column) => (
                  <span key={column.head} class="folded-cell">
                    {!column.quiet && <span class="faint">{column.head} </span>}
                    {row && <span class="clip">{column.cell(row)}</span>}
                  </span>
                ))}
              </div>
            ))}
          </td>
        )}
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
