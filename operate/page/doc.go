// Package page is the operators' page: a few server-rendered pages about one
// process and the state that it shares, on its admin listener.
//
// # Model
//
// A page shows what commands print, and does what commands do, through the same
// functions: operate, operate/explain, operate/plan, operate/noise. Numbers are those
// of this process's registry; rates are the difference between two looks at it. What
// was is from operate/history, which all processes write.
//
// Pictures are made here, as SVG; plots are drawn by the script, from tables that
// stand in the page. So everything can be read without it.
//
// Whoever reaches the listener may read, unless a token is configured: then
// reading needs it as well. Every form that does something needs somebody who is
// signed in with a token: the configured one, or the one that an embedded process
// leaves in its data folder for its own user. A link that is good for one sign-in
// does as well. A signed-in browser has a random cookie; sessions are in memory,
// for a limited time, and end with the process.
//
// # What keeps others out
//
// Beside the token, and auth.Guard in front of the whole listener: the cookie is
// SameSite=Strict, each form has the session's own token, wrong tokens are limited
// in number, and the pages may load nothing but their own style and script
// (Content-Security-Policy). Whatever comes from events is escaped by html/template.
package page
