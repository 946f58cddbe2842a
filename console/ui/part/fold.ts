// Which columns of a table stand in the first line of a row, and which in the lines below it.

export type Foldable = {
  head: string;
  width: number | `${number}fr`;
  /** The least width of a share, in pixels. */
  least?: number;
  /** A column that may leave the first line. The lowest number leaves first. */
  fold?: number;
};

const LEAST = 120;
/** The room of a letter of a name, and of the gap after a value beyond the padding of a cell, in pixels. */
const LETTER = 6.5;
const GAP = 8;

const leastOf = ({ width, least }: Foldable): number => (typeof width === "number" ? width : (least ?? LEAST));

/**
 * Returns the columns of the first line, and those of each line below it. Columns leave the first line until the others fit into `wide`
 * pixels. 0 is a width that is not known yet.
 */
export function foldedInto<C extends Foldable>(columns: C[], wide: number): { first: C[]; below: C[][] } {
  const order = columns.filter(({ fold }) => fold !== undefined).sort((a, b) => (a.fold ?? 0) - (b.fold ?? 0));
  const folded = new Set<C>();
  let needed = columns.reduce((sum, column) => sum + leastOf(column), 0);
  for (const column of order) {
    if (wide === 0 || needed <= wide) break;
    folded.add(column);
    needed -= leastOf(column);
  }
  const below: C[][] = [];
  let left = 0;
  for (const column of columns.filter((column) => folded.has(column))) {
    const room = column.head.length * LETTER + leastOf(column) + GAP;
    if (room > left) {
      below.push([]);
      left = wide;
    }
    below.at(-1)?.push(column);
    left -= room;
  }
  return { first: columns.filter((column) => !folded.has(column)), below };
}
