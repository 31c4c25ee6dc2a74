package auth

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Guard keeps web pages of other sites away from everything that h serves. A
// listener on a loopback address answers for names of loopback only, since a
// browser would ask it under any name that leads there (DNS rebinding). Requests
// that a page of another origin sent are refused, with any method, except that a
// link may lead here.
func Guard(loopback bool, h http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case loopback && !namesLoopback(r.Host):
			http.Error(w, "This listener is on a loopback address and answers for localhost, 127.0.0.1 and [::1] only.", http.StatusMisdirectedRequest)
		case crossOrigin(cross, r) && !isNavigation(r):
			http.Error(w, "The request came from another site.", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// namesLoopback reports whether a Host header names this machine itself.
func namesLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

// crossOrigin reports whether a page of another origin sent the request. Reads count as
// well: they cost work, and their timing tells something.
func crossOrigin(cross *http.CrossOriginProtection, r *http.Request) bool {
	asWrite := *r
	asWrite.Method = http.MethodPost // others pass unseen
	return cross.Check(&asWrite) != nil
}

// isNavigation reports whether the request is a navigation to a page.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Origin") == "" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}
