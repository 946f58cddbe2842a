// The way on from an empty list of alerts or deliveries.
import { href } from "../../app/router";

/** A button to the whole list at `path` if a filter hides its rows, else to the rules that open alerts. */
export function EmptyAction({ isFiltered, path }: { isFiltered: boolean; path: string }) {
  return (
    <a class="btn" href={href(isFiltered ? path : "/alerts/rules")}>
      {isFiltered ? "Clear the filter" : "See the rules"}
    </a>
  );
}
