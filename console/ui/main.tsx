// The start of the console.
import { render } from "preact";
import { arrive, beginArrival } from "./api/arrival";
import { currentSession, session, signInWanted } from "./api/client";
import { startPreferences } from "./app/preferences";
import { startRouter } from "./app/router";
import { App } from "./app/shell";
import "./style/index.css";

startPreferences();
startRouter();
const opened = await currentSession().catch(() => null);
session.value = opened;
signInWanted.value = opened === null;
if (opened) beginArrival();
else arrive();
const root = document.getElementById("console");
if (root) render(<App />, root);
