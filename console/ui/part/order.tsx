// The order of a list: a column and a direction. It stands in the address, and the gateway sorts all pages by it.
import { param, setParams } from "../app/router";
import { Select } from "./form";
import { Icon } from "./icon";

export type Direction = "asc" | "desc";
/** An empty column is the list's own order. */
export type Order = { sort: string; order: Direction };

type Sortable = { head: string; sort?: string; number?: boolean; from?: Direction };

/** The own order of a list. */
export const OWN: Order = { sort: "", order: "desc" };

/** Returns the order in the address if its column is one of `known`, and otherwise `usual`. */
export function orderOf(known: readonly string[], usual: Order = OWN): Order {
  const sort = param("sort");
  if (!known.includes(sort)) return usual;
  return { sort, order: param("order") === "asc" ? "asc" : "desc" };
}

/** The parameters of a list in this order. */
export const asked = ({ sort, order }: Order): Record<string, string> => (sort ? { sort, order } : {});

const isSame = (one: Order, other: Order): boolean => one.sort === other.sort && (one.sort === "" || one.order === other.order);

/** Puts an order into the address; the usual one leaves it. */
function choose(order: Order, usual: Order): void {
  setParams(isSame(order, usual) ? { sort: null, order: null } : { sort: order.sort, order: order.order }, "replace");
}

/** The direction in which people look at a column first: the largest number, the first name. */
const firstOf = ({ from, number }: Sortable): Direction => from ?? (number ? "desc" : "asc");

const textOf = ({ sort, order }: Order): string => (sort ? `${sort} ${order}` : "");

type HeadProps = { of: Sortable; order: Order; usual: Order };

/** The heading of a column. Pressed, it sorts by the column, and then in the other direction. */
export function Head({ of, order, usual }: HeadProps) {
  const { sort } = of;
  if (!sort) return <>{of.head}</>;
  const isChosen = order.sort === sort;
  const next: Order = { sort, order: isChosen ? (order.order === "asc" ? "desc" : "asc") : firstOf(of) };
  return (
    <button type="button" class="sort" onClick={() => choose(next, usual)}>
      {of.head}
      <Icon name={!isChosen ? "chevrons-up-down" : order.order === "asc" ? "arrow-up" : "arrow-down"} small />
    </button>
  );
}

/** Returns `aria-sort` of a column; undefined if it cannot be sorted by. */
export function ariaSort({ sort }: Sortable, order: Order): "ascending" | "descending" | "none" | undefined {
  if (!sort) return undefined;
  if (order.sort !== sort) return "none";
  return order.order === "asc" ? "ascending" : "descending";
}

/** Chooses the order where the headings of some columns have no room. */
export function OrderSelect({ columns, order, usual }: { columns: Sortable[]; order: Order; usual: Order }) {
  const choices = columns.flatMap(({ sort, head, from, number }) => {
    if (!sort) return [];
    const first = firstOf({ head, from, number });
    return [first, first === "asc" ? "desc" : "asc"].map((order): [string, string] => [
      `${sort} ${order}`,
      `${head}, ${order === "asc" ? "ascending" : "descending"}`,
    ]);
  });
  return (
    <div class="table-order">
      <Select
        aria-label="Order"
        value={textOf(order)}
        onValue={(chosen) => {
          const [sort = "", order] = chosen.split(" ");
          choose(sort ? { sort, order: order as Direction } : OWN, usual);
        }}
        options={[
          ...(columns.some(({ sort }) => sort === usual.sort) ? [] : [[textOf(usual), "In the usual order"] as [string, string]]),
          ...choices,
        ]}
      />
    </div>
  );
}
