// The list of a page: what filters it, its table, and what stands in place of the table without rows.
import type { ComponentChildren } from "preact";
import { setParams } from "../app/router";
import { Empty } from "./feedback";
import { Icon, type IconName } from "./icon";
import { Card } from "./page";
import { Table, type TableProps } from "./table";

type Props<T> = Omit<TableProps<T>, "empty"> & {
  filters?: ComponentChildren;
  /** Stands above the table. */
  note?: ComponentChildren;
  isFiltered: boolean;
  icon: IconName;
  /** Titles if the filters leave out all rows, and if there are none. */
  titles: [string, string];
  help?: ComponentChildren;
  action?: ComponentChildren;
};

export function ListCard<T>({ filters, note, isFiltered, icon, titles: [unfitting, none], help, action, ...table }: Props<T>) {
  const empty = (
    <Empty icon={icon} title={isFiltered ? unfitting : none} action={action}>
      {help}
    </Empty>
  );
  return (
    <>
      {filters && <div class="filters">{filters}</div>}
      <Card bare>
        {note}
        <Table<T> {...table} empty={empty} />
      </Card>
    </>
  );
}

/** Opens the dialog that creates an object of the page. */
export function NewButton({ children, look = "primary" }: { children: ComponentChildren; look?: "primary" | "" }) {
  return (
    <button type="button" class={`btn ${look}`.trim()} onClick={() => setParams({ new: "1" })}>
      {children}
    </button>
  );
}

/** The button of a page's head that does so, which a key also presses. */
export function HeadNewButton({ children }: { children: ComponentChildren }) {
  return (
    <button type="button" class="btn primary" data-new onClick={() => setParams({ new: "1" })}>
      <Icon name="plus" small />
      {children}
    </button>
  );
}

/** Takes back filters of the address. */
export function ClearButton({ of }: { of: readonly string[] }) {
  return (
    <button type="button" class="btn" onClick={() => setParams(Object.fromEntries(of.map((name) => [name, null])))}>
      Clear the filter
    </button>
  );
}
