// Package page is the operators' page: a few server-rendered pages about one process and the
// state that it shares, on its admin listener.
//
// # Model
//
// A page shows the same results as the commands, by the same functions: operate,
// operate/explain, operate/noise. Numbers are those of this process's registry; rates are the
// difference between two snapshots. The past is from operate/history, which all processes write.
//
// Each section has a handler type of its own around the frame [Page], which authenticates,
// bounds and renders. Pictures are SVG, made here. The script draws plots from tables of the
// page, so everything can be read without it.
//
// Every client of the listener may read, unless a token is configured: then reading needs it,
// too. Every form that changes something needs an operator who signed in with a token: the
// configured one, or the one that an embedded process leaves in its data folder for its own
// user. A link that is valid for one sign-in does as well. A signed-in browser has a random
// cookie; sessions are in memory, for a limited time, and end with the process.
//
// # Protection
//
// Beside the token, and auth.Guard in front of the whole listener: the cookie is
// SameSite=Strict, each form has the session's own token, wrong tokens are limited in number,
// and the pages may load nothing but their own style and script (Content-Security-Policy).
// html/template escapes all text from events.
package page
