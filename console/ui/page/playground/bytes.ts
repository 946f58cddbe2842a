// Two texts beside each other, line by line, with what differs.

export type Row = { left: string | null; right: string | null; same: boolean };

/** Lines beyond this number are compared by their place: the table of the comparison would be too large. */
const COMPARED_MAX = 400;

/** Lays two texts beside each other so that as many lines as possible agree. */
export function rowsOf(left: string[], right: string[]): Row[] {
  if (left.length > COMPARED_MAX || right.length > COMPARED_MAX) return byPlace(left, right);
  const common = commonLines(left, right);
  const at = (i: number, j: number): number => common[i]?.[j] ?? 0;
  const rows: Row[] = [];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    const [one, other] = [left[i], right[j]];
    const isSame = one !== undefined && one === other;
    const isLeft = !isSame && (other === undefined || (one !== undefined && at(i + 1, j) >= at(i, j + 1)));
    rows.push({ left: isSame || isLeft ? (one ?? null) : null, right: isLeft ? null : (other ?? null), same: isSame });
    if (isSame || isLeft) i += 1;
    if (!isLeft) j += 1;
  }
  return rows;
}

function byPlace(left: string[], right: string[]): Row[] {
  return Array.from({ length: Math.max(left.length, right.length) }, (_, i) => ({
    left: left[i] ?? null,
    right: right[i] ?? null,
    same: left[i] === right[i],
  }));
}

/** The length of the longest common part of the ends that begin at each pair of lines. */
function commonLines(left: string[], right: string[]): number[][] {
  const common: number[][] = Array.from({ length: left.length + 1 }, () => new Array<number>(right.length + 1).fill(0));
  for (let i = left.length - 1; i >= 0; i -= 1) {
    const [row, below] = [common[i] ?? [], common[i + 1] ?? []];
    for (let j = right.length - 1; j >= 0; j -= 1)
      row[j] = left[i] === right[j] ? (below[j + 1] ?? 0) + 1 : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
  }
  return common;
}
