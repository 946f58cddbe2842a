// Names of the console for generated types.
export type {
  Effects,
  KeyEffect,
  LiveChange as Change,
  LiveEvents,
  LiveProvider,
  RequestRecord as FullRecord,
  RunningRequest as Running,
  SeenRequest as Watched,
  SelectorAccess,
  Series as SeriesAnswer,
  SeriesPoints as Points,
  Setup,
  Step as TimedStep,
  Verdict,
  VerdictReason as Reason,
  VerdictState,
} from "./types";
